//! The scripts of the strict dialect with mistakes in them, against the tests on real servers.
//!
//! Nothing is built anew for a mutant: test builds with the feature `mutation` read it from a file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Part;
use super::explained::{Explained, Survivor, Tally};
use super::lua::{Mutant, mutants};
use super::outcome::Outcome;
use crate::debian;
use crate::project::{Project, command_line};
use crate::test_command::REQUIRES;

const FOLDER: &str = "crates/quorlock/src/node/redis/dialect/lua";
/// A script that loops for ever makes its server hang: a test that takes so many times as long as it does with
/// the scripts as they are. But on a machine that is busy one that passes must not seem to hang.
const LIMIT: u32 = 5;
const LEAST_LIMIT: Duration = Duration::from_secs(60);
/// So many mutants are tried at once: most of the time is spent waiting for servers.
const AT_ONCE: usize = 3;
/// So often tests are run that fail together and pass alone.
const ATTEMPTS: usize = 3;

/// A test program, and what of it is run. Those that catch most come first.
struct Suite {
    cargo: &'static [&'static str],
    program: &'static str,
    tests: &'static [&'static str],
    /// For scripts with this in their names.
    of: &'static str,
}

/// Tests of the library.
const LIBRARY: &[&str] =
    &["--package=quorlock", "--test=nodes", "--test=operations", "--test=strict"];

const SUITES: [Suite; 7] = [
    Suite { cargo: LIBRARY, program: "operations", tests: &["forget::"], of: "/forget" },
    Suite { cargo: LIBRARY, program: "strict", tests: &["tending::"], of: "/tend" },
    Suite {
        cargo: &["--package=quorlock-simulator", "--lib"],
        program: "quorlock_simulator",
        tests: &["nodes::beside_a_server::strict", "nodes::shared_beside_a_server::strict"],
        of: "",
    },
    Suite { cargo: LIBRARY, program: "nodes", tests: &["conformance::redis::"], of: "" },
    Suite { cargo: LIBRARY, program: "strict", tests: &["scripts::", "is_forgotten"], of: "" },
    Suite {
        cargo: LIBRARY,
        program: "nodes",
        tests: &["redis::rights::", "redis::queue::"],
        of: "",
    },
    Suite { cargo: LIBRARY, program: "strict", tests: &[], of: "" },
];

/// The first so many of them take seconds.
const QUICK: usize = 5;

/// One mutant of one file.
type Job<'a> = (&'a str, Mutant);

/// Makes all mutants, or those of a part, and checks that the tests catch them.
pub(super) fn run(project: &Project, part: &Part) -> Result<bool> {
    debian::install(debian::missing_redis().as_slice())?;
    debian::install(debian::missing_c_compiler())?;
    let explained = Explained::read(&project.root)?;
    let mut scripts = scripts(&project.root)?;
    scripts.retain(|file, _| part.takes(file));
    if scripts.is_empty() {
        bail!("no script has one of {:?} in its name", part.files);
    }
    let folder = project.target.join("mutants").join("lua");
    fs::create_dir_all(&folder)?;
    let programs = build(project, &folder)?;
    let suites = if part.quick { &SUITES[..QUICK] } else { &SUITES[..] };
    let mut bench = Bench {
        root: &project.root,
        folder: &folder,
        programs: &programs,
        suites,
        limits: Vec::new(),
    };
    for (file, script) in &scripts {
        fs::write(bench.original(file), script)?;
    }
    bench.check_that_mistakes_arrive(&scripts)?;

    let all = scripts.iter().flat_map(|(file, script)| {
        mutants(script).into_iter().map(|mutant| (file.as_str(), mutant))
    });
    let mine: Vec<Job<'_>> = all.enumerate().filter(|it| part.holds(it.0)).map(|it| it.1).collect();
    let log = Log::open(&folder.join("caught"), &scripts, part.again)?;
    let (known, todo): (Vec<_>, Vec<_>) = mine.into_iter().partition(|job| log.has(job));
    let made = known.len() + todo.len();
    println!("{made} mutants: {} are known to be caught", known.len());
    let survivors = bench.try_all(&scripts, todo, &log, |job| {
        // One with a reason why no test can see it needs the slow ones only now and then.
        if !part.again && explained.has(&named(job)) { QUICK } else { SUITES.len() }
    })?;
    let caught = made - survivors.len();
    let tally = Tally { caught, survivors: survivors.into_iter().collect() };
    let whole = part.shard.is_none() && !part.quick;
    let covers = |file: &str| whole && scripts.contains_key(file);
    Ok(tally.check("scripts", &explained, covers))
}

/// The scripts by their files, from the top of the project.
fn scripts(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for folder in [FOLDER.to_owned(), format!("{FOLDER}/strict")] {
        for entry in fs::read_dir(root.join(&folder)).with_context(|| format!("no {folder}"))? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            let file = format!("{folder}/{name}");
            if name.ends_with(".lua") {
                all.insert(file.clone(), fs::read_to_string(root.join(&file))?);
            }
        }
    }
    Ok(all)
}

/// Builds the tests, and returns their programs by name: copies, so that others may build meanwhile.
fn build(project: &Project, folder: &Path) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut programs = BTreeMap::new();
    for suite in &SUITES {
        if programs.contains_key(suite.program) {
            continue;
        }
        let mut command = project.cargo(["test", "--no-run", "--all-features", "--locked"]);
        command.args(suite.cargo).arg("--message-format=json-render-diagnostics");
        let line = command_line(&command);
        println!("    {line}");
        let output = command.stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("`{line}` does not start"))?;
        if !output.status.success() {
            bail!("`{line}` failed ({}): its message is above", output.status);
        }
        for path in executables(&String::from_utf8_lossy(&output.stdout)) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
            if let Some(suite) = SUITES.iter().find(|suite| suite.program == name) {
                let copy = folder.join(suite.program);
                // One that still runs cannot be written to.
                if copy.exists() {
                    fs::remove_file(&copy)?;
                }
                fs::copy(&path, &copy)
                    .with_context(|| format!("{} cannot be copied", path.display()))?;
                programs.insert(suite.program, copy);
            }
        }
    }
    for suite in &SUITES {
        if !programs.contains_key(suite.program) {
            bail!("cargo has built no test program `{}`", suite.program);
        }
    }
    Ok(programs)
}

/// The test programs that cargo says it has built.
fn executables(messages: &str) -> Vec<PathBuf> {
    let files = messages.lines().filter_map(|line| {
        let (_, after) = line.rsplit_once(r#""executable":""#)?;
        after.split_once('"').map(|(file, _)| PathBuf::from(file))
    });
    files.collect()
}

/// What mutants are tried with.
struct Bench<'a> {
    root: &'a Path,
    folder: &'a Path,
    programs: &'a BTreeMap<&'static str, PathBuf>,
    suites: &'a [Suite],
    /// How long each of them may take.
    limits: Vec<Duration>,
}

impl Bench<'_> {
    /// Each file as it is passes, and with nothing in it but an error it does not.
    fn check_that_mistakes_arrive(&mut self, scripts: &BTreeMap<String, String>) -> Result<()> {
        let Some((file, script)) = scripts.first_key_value() else { return Ok(()) };
        for suite in self.suites {
            let began = Instant::now();
            if self.fails(suite, file, script, 0, Duration::MAX)? {
                let Suite { program, tests, .. } = suite;
                bail!("{program} {tests:?} fails with the scripts as they are: mend that first");
            }
            self.limits.push(LEAST_LIMIT.max(began.elapsed() * LIMIT));
        }
        println!("the tests may take {:.0?}", self.limits);
        for file in scripts.keys() {
            if !self.is_caught(SUITES.len(), file, "error('a mistake')\n", 0)? {
                bail!("no test notices that {file} is broken: is it sent by another way?");
            }
        }
        Ok(())
    }

    fn try_all(
        &self,
        scripts: &BTreeMap<String, String>,
        todo: Vec<Job<'_>>,
        log: &Log,
        suites: impl Fn(&Job<'_>) -> usize + Sync,
    ) -> Result<Vec<Survivor>> {
        let (total, began) = (todo.len(), Instant::now());
        let queue = Mutex::new(VecDeque::from(todo));
        let survivors = Mutex::new(Vec::new());
        let work = |worker: usize| -> Result<()> {
            loop {
                let (job, left) = {
                    let mut queue = locked(&queue);
                    (queue.pop_front(), queue.len())
                };
                let Some(job) = job else { return Ok(()) };
                let (file, mutant) = &job;
                let becomes = mutant.apply(&scripts[*file]);
                if self.is_caught(suites(&job), file, &becomes, worker)? {
                    log.add(&job)?;
                } else {
                    let Mutant { at, line, becomes } = mutant;
                    println!("survives: {file}:{}: {line} → {becomes}", at + 1);
                    locked(&survivors).push(named(&job));
                }
                let done = total - left;
                if done % 20 == 0 {
                    println!("{done} of {total}, {:.0} s", began.elapsed().as_secs_f32());
                }
            }
        };
        thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (0..AT_ONCE).map(|it| scope.spawn(move || work(it))).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| bail!("a thread has panicked"))
            })
        })?;
        Ok(survivors.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether some test of the first so many suites fails, or hangs, with this in the place of a script.
    fn is_caught(&self, suites: usize, file: &str, becomes: &str, worker: usize) -> Result<bool> {
        let suites = self.suites.iter().zip(&self.limits).take(suites);
        for (suite, limit) in suites.filter(|(suite, _)| file.contains(suite.of)) {
            if self.fails(suite, file, becomes, worker, *limit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether some test of a suite fails, or hangs.
    ///
    /// It has to do so twice, by itself the second time: on a machine that is busy, one may fail that has noticed
    /// nothing.
    fn fails(
        &self,
        suite: &Suite,
        file: &str,
        becomes: &str,
        worker: usize,
        limit: Duration,
    ) -> Result<bool> {
        let run =
            |tests: &[&str], limit| self.run(suite.program, tests, file, becomes, worker, limit);
        for _ in 0..ATTEMPTS {
            let again = match run(suite.tests, limit)? {
                Outcome::Passed => return Ok(false),
                Outcome::Failed(test) => run(&[&test, "--exact"], limit)?,
                Outcome::Broken => run(suite.tests, limit.saturating_mul(2))?,
            };
            if again != Outcome::Passed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs some tests of a program with this in the place of a script.
    fn run(
        &self,
        program: &str,
        tests: &[&str],
        file: &str,
        becomes: &str,
        worker: usize,
        limit: Duration,
    ) -> Result<Outcome> {
        let mutant = self.folder.join(format!("mutant-{worker}.lua"));
        fs::write(&mutant, becomes)?;
        let mut command = Command::new(&self.programs[program]);
        command
            .current_dir(self.root)
            .args(tests)
            .env("QUORLOCK_MUTANT_OF", self.original(file))
            .env("QUORLOCK_MUTANT", &mutant)
            .env("RUST_BACKTRACE", "0")
            // A test that is skipped notices nothing.
            .env(REQUIRES, "redis-server,cc");
        Outcome::of(&mut command, limit)
    }

    /// A script as it was when the tests were built.
    fn original(&self, file: &str) -> PathBuf {
        self.folder.join(file.replace('/', "+"))
    }
}

fn named((file, mutant): &Job<'_>) -> Survivor {
    let Mutant { line, becomes, .. } = mutant.clone();
    Survivor { file: (*file).to_owned(), line, becomes }
}

/// Which mutants have been caught, so that a run that was ended goes on. What was caught in a script that has
/// changed since does not count.
struct Log {
    digests: BTreeMap<String, u64>,
    known: BTreeSet<String>,
    file: Mutex<File>,
}

impl Log {
    fn open(path: &Path, scripts: &BTreeMap<String, String>, again: bool) -> Result<Self> {
        let digest = |script: &String| {
            let mut hasher = DefaultHasher::new();
            script.hash(&mut hasher);
            hasher.finish()
        };
        let digests = scripts.iter().map(|(file, script)| (file.clone(), digest(script))).collect();
        let file = File::options().create(true).append(true).open(path)?;
        if again {
            file.set_len(0)?;
        }
        let known = fs::read_to_string(path)?.lines().map(str::to_owned).collect();
        Ok(Self { digests, known, file: Mutex::new(file) })
    }

    fn key(&self, (file, mutant): &Job<'_>) -> String {
        format!("{:016x} {file}:{} {}", self.digests[*file], mutant.at + 1, mutant.becomes)
    }

    fn has(&self, job: &Job<'_>) -> bool {
        self.known.contains(&self.key(job))
    }

    fn add(&self, job: &Job<'_>) -> Result<()> {
        let line = format!("{}\n", self.key(job));
        Ok(locked(&self.file).write_all(line.as_bytes())?)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let said = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/a/deps/strict-0123\",\"fresh\":true}\n";
        assert_eq!(executables(said), [PathBuf::from("/a/deps/strict-0123")]);
    }

    #[test]
    fn what_was_caught_is_not_tried_again_until_the_script_changes() {
        let file = std::env::temp_dir().join(format!("quorlock-mutants-{}", std::process::id()));
        let scripts = |text: &str| BTreeMap::from([("a.lua".to_owned(), text.to_owned())]);
        let mutant = mutants("return 1 < 2\n").remove(0);
        let job = ("a.lua", mutant);
        let open = |text, again| Log::open(&file, &scripts(text), again).unwrap();
        let log = open("return 1 < 2\n", false);
        assert!(!log.has(&job));
        log.add(&job).unwrap();
        assert!(open("return 1 < 2\n", false).has(&job));
        assert!(!open("return 1 < 2 -- other\n", false).has(&job));
        assert!(!open("return 1 < 2\n", true).has(&job), "all of it once more");
        fs::remove_file(&file).unwrap();
    }
}
