//! What is said of arguments that cannot be read: clap's words, without secrets, and what was probably meant.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Args;
use crate::nearest::nearest;

/// Options that other programs have, and what they are called here.
const ELSEWHERE: [(&str, &str); 6] = [
    ("--timeout", "--wait"),
    ("--wait-timeout", "--wait"),
    ("--lease", "--ttl"),
    ("--expire", "--ttl"),
    ("--no-wait", "--nonblock"),
    ("--nb", "--nonblock"),
];

/// What to say, with `tip:` before each piece of advice.
pub(super) fn explain(error: &clap::Error, args: &[OsString]) -> String {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ").trim_end();
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let text = match tip(error, &words) {
        Some(tip) => with_tip(text, &tip),
        None => text.to_owned(),
    };
    // Whole words first: a password may have spaces and quotes in it.
    let urls = words.iter().filter(|word| word.contains("://"));
    let text = urls.fold(text, |text, word| text.replace(word.as_str(), &without_url(word)));
    without_tokens(&without_urls(&text))
}

/// In the place of clap's own advice, such as to write what is not known behind `--`, where the command stands.
fn with_tip(text: &str, tip: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("  tip: "));
    let text = lines.collect::<Vec<_>>().join("\n").replace("\n\n\n", "\n\n");
    match text.split_once("\n\nUsage:") {
        Some((problem, usage)) => format!("{problem}\n\n  tip: {tip}\n\nUsage:{usage}"),
        None => format!("{text}\n\n  tip: {tip}"),
    }
}

fn tip(error: &clap::Error, words: &[String]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let wrong = context(ContextKind::InvalidSubcommand)?;
            // Clap knows of words that begin alike.
            if error.get(ContextKind::SuggestedSubcommand).is_some() {
                return None;
            }
            let commands = Args::command();
            let names: Vec<_> = commands.get_subcommands().map(clap::Command::get_name).collect();
            if let Some(meant) = nearest(wrong, names.iter().copied()) {
                return Some(format!("a similar subcommand exists: '{meant}'"));
            }
            // A lock and a command, and nothing before.
            let runs = words.iter().skip_while(|word| *word != wrong).any(|word| word == "--");
            let lock = quoted(&without_url(wrong));
            runs.then(|| format!("a command is run by quorlock run: quorlock run {lock} -- …"))
        }
        ErrorKind::UnknownArgument => {
            let wrong = context(ContextKind::InvalidArg)?;
            let is_it = |word: &&String| *word == wrong || word.starts_with(&format!("{wrong}="));
            let place = words.iter().position(|word| is_it(&word))?;
            let of_run = words.get(1).is_some_and(|word| word == "run");
            if of_run && !wrong.starts_with('-') && !words[..place].iter().any(|word| word == "--")
            {
                // Nothing else of the line is shown: it may hold secrets.
                let command = quoted(&without_url(wrong));
                return Some(format!(
                    "the command stands behind --: quorlock run … -- {command} …"
                ));
            }
            let (_, here) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == wrong)?;
            let takes_value = *here != "--nonblock";
            let value = match words[place].split_once('=') {
                Some((_, value)) => Some(value),
                None => words.get(place + 1).map(String::as_str),
            };
            let value = value.filter(|_| takes_value).map(|value| format!(" {}", quoted(value)));
            Some(format!("write {here}{}", value.unwrap_or_default()))
        }
        _ => None,
    }
}

/// A word as a shell takes it for itself.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A word of the line, without what may be a password.
fn without_url(word: &str) -> String {
    word.split_once("://").map_or_else(|| word.to_owned(), |(scheme, _)| format!("{scheme}://…"))
}

/// What was written into a wrong place may be a URL with a password.
fn without_urls(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, url)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://…");
        let end = url.find(|c: char| c.is_whitespace() || "'\"".contains(c));
        rest = &url[end.unwrap_or(url.len())..];
    }
    shown + rest
}

/// A token, too, may have been written into a wrong place.
fn without_tokens(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, token)) = rest.split_once("ql:") {
        shown.push_str(before);
        shown.push_str("ql:…");
        rest = token.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == ':');
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn explained(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(Into::into).collect();
        explain(&Args::try_parse_from(&args).err().expect("a mistake"), &args)
    }

    #[test]
    fn what_was_meant_is_said() {
        for (line, tip) in [
            (
                "quorlock run demo echo hello",
                "tip: the command stands behind --: quorlock run … -- echo …\n",
            ),
            ("quorlock run -n demo it's --pw=x", "behind --: quorlock run … -- 'it'\\''s' …\n"),
            ("quorlock rnu demo -- true", "tip: a similar subcommand exists: 'run'\n"),
            ("quorlock aqcuire demo", "tip: a similar subcommand exists: 'acquire'\n"),
            (
                "quorlock nightly -- ./backup.sh",
                "tip: a command is run by quorlock run: quorlock run nightly -- …\n",
            ),
            ("quorlock run --timeout 3 demo -- true", "tip: write --wait 3\n"),
            ("quorlock acquire --timeout=3 demo", "tip: write --wait 3\n"),
            ("quorlock run --no-wait demo -- true", "tip: write --nonblock\n"),
        ] {
            let text = explained(line);
            assert!(text.contains(tip), "{line}: {text}");
            assert_eq!(text.matches("tip: ").count(), 1, "{line}: {text}");
            assert!(text.contains("\n\nUsage: quorlock"), "{line}: {text}");
        }
        let other = explained("quorlock walk");
        assert!(!other.contains("tip:"), "{other}");
    }

    #[test]
    fn a_url_in_the_wrong_place_is_not_shown() {
        assert_eq!(
            without_urls("unexpected 'redis://:secret@h,redis://:b@i' found\nUsage: x://y"),
            "unexpected 'redis://…' found\nUsage: x://…"
        );
        assert_eq!(without_urls("nothing: here"), "nothing: here");
        for url in ["redis://:secret@h", "redis://:it's-secret@h", "redis://:a secret@h"] {
            for args in [
                &["run", "--node", url, "demo", url][..],
                &["run", "--node", url, "demo", "mysqldump", "--password=secret"],
                &["run", "--node", url, "--walk", url, "demo"],
                &[url, "--", "true"],
            ] {
                let args: Vec<_> = ["quorlock"].iter().chain(args).map(OsString::from).collect();
                let error = Args::try_parse_from(&args).err().expect("a mistake");
                let said = explain(&error, &args);
                assert!(!said.contains("secret"), "{args:?}: {said}");
            }
        }
    }

    #[test]
    fn a_token_in_the_wrong_place_is_not_shown() {
        let token = "ql:0123456789abcdef0123456789abcdef01234567:0123456789abcdef01234567";
        let text = format!("unexpected argument '{token}' found\n{token}");
        assert_eq!(without_tokens(&text), "unexpected argument 'ql:…' found\nql:…");
        assert_eq!(without_tokens("nothing: here"), "nothing: here");
    }
}
