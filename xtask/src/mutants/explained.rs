//! The mutants that may survive, each with the reason why no test can see it or need see it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Where the list lies in the project.
pub(super) const LIST: &str = "xtask/mutants/explained.txt";

/// A mutant, by what stands in its line and not by where that is: lines move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Survivor {
    /// From the top of the project.
    pub(super) file: String,
    /// The line as it is.
    pub(super) line: String,
    /// The line as it becomes, or what was done to it.
    pub(super) becomes: String,
}

/// The list.
#[derive(Debug, Default)]
pub(super) struct Explained(BTreeSet<Survivor>);

impl Explained {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("no {LIST}"))?;
        Self::parse(&text).with_context(|| format!("{LIST} cannot be read"))
    }

    /// Reads entries with an empty line between them:
    ///
    /// ```text
    /// file: crates/protocol/src/lease.rs
    /// line: if now >= self.valid_until {
    /// becomes: replace >= with < in Lease::state
    /// because: why it makes no difference
    /// ```
    ///
    /// One entry may have several of `becomes`, or `becomes: *` for whatever its line becomes. Its reason
    /// may go on in lines that are indented.
    fn parse(text: &str) -> Result<Self> {
        let mut all = BTreeSet::new();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let text = lines.collect::<Vec<_>>().join("\n");
        for entry in text.split("\n\n").filter(|entry| !entry.trim().is_empty()) {
            let (mut file, mut line, mut because, mut becomes) = (None, None, None, Vec::new());
            for part in entry.lines().filter(|part| !part.is_empty() && !part.starts_with(' ')) {
                match part.split_once(": ") {
                    Some(("file", value)) => file = Some(value.trim()),
                    Some(("line", value)) => line = Some(value.trim()),
                    Some(("becomes", value)) => becomes.push(value.trim()),
                    Some(("because", value)) => because = Some(value.trim()),
                    _ => bail!("`{part}` is none of `file: `, `line: `, `becomes: `, `because: `"),
                }
            }
            let (Some(file), Some(line), Some(_)) = (file, line, because) else {
                bail!("an entry lacks its file, its line or its reason:\n{entry}");
            };
            for becomes in becomes {
                let [file, line, becomes] = [file, line, becomes].map(str::to_owned);
                all.insert(Survivor { file, line, becomes });
            }
        }
        Ok(Self(all))
    }

    pub(super) fn has(&self, survivor: &Survivor) -> bool {
        self.0.iter().any(|entry| entry.explains(survivor))
    }

    /// The entries of these files that no survivor bears out.
    pub(super) fn idle<'a>(
        &'a self,
        covers: impl Fn(&str) -> bool,
        survivors: &BTreeSet<Survivor>,
    ) -> Vec<&'a Survivor> {
        let here = self.0.iter().filter(|entry| covers(&entry.file));
        let idle = |entry: &&Survivor| !survivors.iter().any(|survivor| entry.explains(survivor));
        here.filter(idle).collect()
    }
}

/// Whatever the line becomes.
const ANYTHING: &str = "*";

impl Survivor {
    /// Whether this entry of the list is about that mutant.
    fn explains(&self, survivor: &Self) -> bool {
        let same = self.becomes == survivor.becomes || self.becomes == ANYTHING;
        same && (&self.file, &self.line) == (&survivor.file, &survivor.line)
    }
}

/// What came of some mutants.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) caught: usize,
    pub(super) survivors: BTreeSet<Survivor>,
}

impl Tally {
    /// Prints what has to be mended, and tells whether nothing has. `covers` says which files were
    /// looked at from beginning to end.
    pub(super) fn check(
        &self,
        what: &str,
        explained: &Explained,
        covers: impl Fn(&str) -> bool,
    ) -> bool {
        let unexplained: Vec<_> =
            self.survivors.iter().filter(|survivor| !explained.has(survivor)).collect();
        let idle = explained.idle(covers, &self.survivors);
        for Survivor { file, line, becomes } in &unexplained {
            println!("\nNOT CAUGHT\nfile: {file}\nline: {line}\nbecomes: {becomes}");
        }
        for Survivor { file, line, becomes } in &idle {
            println!(
                "\nEXPLAINED, BUT NOT THERE OR CAUGHT\nfile: {file}\nline: {line}\nbecomes: {becomes}"
            );
        }
        let known = self.survivors.len() - unexplained.len();
        println!(
            "\n{what}: {} mutants, {} caught, {known} explained, {} not caught, {} explained in vain",
            self.caught + self.survivors.len(),
            self.caught,
            unexplained.len(),
            idle.len()
        );
        if !unexplained.is_empty() || !idle.is_empty() {
            println!("write a test that goes red with it, or set {LIST} right");
        }
        unexplained.is_empty() && idle.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# The list.\n\nfile: a.lua\nline: x < y\nbecomes: x <= y\nbecomes: x > y\n\
        because: they are\n  never the same\n\nfile: b.lua\nline: z\nbecomes: (left out)\nbecause: it is\n";

    fn survivor(file: &str, line: &str, becomes: &str) -> Survivor {
        let [file, line, becomes] = [file, line, becomes].map(str::to_owned);
        Survivor { file, line, becomes }
    }

    #[test]
    fn an_entry_explains_what_it_names_and_nothing_else() {
        let list = Explained::parse(TEXT).unwrap();
        assert!(list.has(&survivor("a.lua", "x < y", "x <= y")));
        assert!(list.has(&survivor("a.lua", "x < y", "x > y")));
        assert!(list.has(&survivor("b.lua", "z", "(left out)")));
        assert!(!list.has(&survivor("a.lua", "x < y", "x >= y")));
        assert!(!list.has(&survivor("b.lua", "x < y", "x <= y")));
    }

    #[test]
    fn what_is_not_explained_and_what_is_explained_in_vain_are_both_bad() {
        let list = Explained::parse(TEXT).unwrap();
        let all = || [survivor("a.lua", "x < y", "x <= y"), survivor("a.lua", "x < y", "x > y")];
        let tally = |survivors: &[Survivor]| Tally {
            caught: 1,
            survivors: survivors.iter().cloned().collect(),
        };
        let in_a = |file: &str| file == "a.lua";
        assert!(tally(&all()).check("a", &list, in_a));
        assert!(!tally(&all()[..1]).check("a", &list, in_a), "the other is caught by now");
        assert!(tally(&all()[..1]).check("a", &list, |_| false), "not all of it was looked at");
        let more = [all().to_vec(), vec![survivor("a.lua", "z", "(left out)")]].concat();
        assert!(!tally(&more).check("a", &list, in_a));
        assert!(
            !tally(&all()).check("all", &list, |_| true),
            "the one of the other file is caught"
        );
    }

    #[test]
    fn an_entry_may_explain_whatever_becomes_of_its_line() {
        let list = Explained::parse("file: a\nline: x\nbecomes: *\nbecause: speed\n").unwrap();
        assert!(list.has(&survivor("a", "x", "y")) && !list.has(&survivor("a", "y", "x")));
        let some = BTreeSet::from([survivor("a", "x", "z")]);
        assert!(list.idle(|_| true, &some).is_empty());
        assert_eq!(list.idle(|_| true, &BTreeSet::new()).len(), 1);
    }

    #[test]
    fn an_entry_without_a_reason_is_none() {
        let error = Explained::parse("file: a\nline: b\nbecomes: c\n").unwrap_err();
        assert!(error.to_string().contains("lacks"), "{error}");
        let error = Explained::parse("file: a\nwhy: b\n").unwrap_err();
        assert!(error.to_string().contains("`why: b`"), "{error}");
    }
}
