//! Who holds a lock, as others may know it.
//!
//! The note on the nodes is a small JSON object. Of a command it has only the name: arguments may
//! hold secrets.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use quorlock::{Error, MAX_NOTE_BYTES, Note};
use rustix::process::{getpid, getppid, getuid};
use rustix::system::uname;
use serde_json::{Value, json};

use crate::args::NoteArgs;
use crate::duration;
use crate::exit::{self, Failed};
use crate::time::utc_for_people;

/// The variable that can turn notes off.
const VARIABLE: &str = "QUORLOCK_NOTE";

/// Longer names are cut off.
const MOST_BYTES: usize = 100;

/// Who holds a lock: a process of this program, or the one that has called it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) host: String,
    pub(crate) user: String,
    pub(crate) pid: u64,
    pub(crate) command: String,
}

/// The note for a lock that this process holds while it runs `program`. Empty if notes are off, by
/// the arguments, the environment or `file`.
pub(crate) fn of_this_process(
    args: &NoteArgs,
    file: Option<bool>,
    program: &OsStr,
) -> Result<String, Failed> {
    of(args, file, || (getpid().as_raw_nonzero().get(), name_of(program)))
}

/// The note for a lock that the process holds which has called this one.
pub(crate) fn of_the_caller(args: &NoteArgs, file: Option<bool>) -> Result<String, Failed> {
    of(args, file, || {
        let pid = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        // The name alone, which is there for every process.
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        (pid, name_of(OsStr::from_bytes(name.trim_ascii_end())))
    })
}

fn of(
    args: &NoteArgs,
    file: Option<bool>,
    process: impl FnOnce() -> (i32, String),
) -> Result<String, Failed> {
    match env::var_os(VARIABLE).as_deref().map(OsStr::as_bytes) {
        None | Some(b"") if file == Some(false) => return Ok(String::new()),
        None | Some(b"" | b"on") => {}
        Some(b"off") => return Ok(String::new()),
        Some(_) => {
            let message =
                format!("{VARIABLE} is neither on nor off; write one of them, or nothing");
            return Err(Failed::new(exit::MISUSE, message));
        }
    }
    if args.no_note {
        return Ok(String::new());
    }
    let (pid, command) = process();
    let host = short(&uname().nodename().to_string_lossy());
    let pid = u64::try_from(pid).unwrap_or(0);
    Ok(Who { host, user: user(), pid, command }.note())
}

impl Who {
    fn note(&self) -> String {
        let Self { host, user, pid, command } = self;
        let note = json!({ "host": host, "user": user, "pid": pid, "command": command });
        let note = note.to_string();
        // Names of nothing but quotation marks.
        if note.len() > MAX_NOTE_BYTES { json!({ "pid": pid }).to_string() } else { note }
    }

    /// `None` for a note of somebody else.
    pub(crate) fn read(note: &Note) -> Option<Self> {
        let Value::Object(fields) = serde_json::from_str(&note.text).ok()? else { return None };
        let pid = fields.get("pid")?.as_u64()?;
        let text = |key| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self { host: text("host"), user: text("user"), pid, command: text("command") })
    }

    pub(crate) fn json(&self) -> Value {
        let Self { host, user, pid, command } = self;
        json!({ "host": host, "user": user, "pid": pid, "command": command })
    }
}

/// What a holder says of itself, for people.
pub(crate) fn shown(note: &Note) -> String {
    match Who::read(note) {
        Some(Who { host, user, pid, command }) => {
            let place = if host.is_empty() { user } else { format!("{user}@{host}") };
            let parts = [place, format!("pid {pid}"), command];
            let known: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            printable(&known.join(", "))
        }
        None => printable(&note.text),
    }
}

/// Why a lock was not taken, if that is because of a holder who says who it is.
pub(crate) fn why_taken(error: &Error, now: SystemTime) -> Option<String> {
    match error {
        Error::Taken { name, holder, remaining, note: Some(note) } => {
            let mut text = format!("the lock {name} is taken by {}", shown(note));
            // Writing to a string cannot fail.
            if let Some(holder) = holder {
                let _ = write!(text, " ({holder})");
            }
            if let Some(since) = note.since {
                let _ = write!(text, ", since {}", since_for_people(since, now));
            }
            if let Some(left) = remaining {
                let _ = write!(text, ", for another {} unless renewed", duration::shown(*left));
            }
            Some(text)
        }
        Error::TimedOut { name, waited, last } => {
            let last = why_taken(last, now)?;
            Some(format!("waited {} for the lock {name}: {last}", duration::shown(*waited)))
        }
        _ => None,
    }
}

/// `2026-11-16 04:48:28 UTC, 12.0s ago`. Clocks of other machines may be ahead of this one.
pub(crate) fn since_for_people(since: SystemTime, now: SystemTime) -> String {
    let ago = now.duration_since(since).map(|ago| format!(", {} ago", duration::shown(ago)));
    format!("{}{}", utc_for_people(since), ago.unwrap_or_default())
}

/// Without what would make a terminal do anything: anybody can have put it on a node.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() || is_invisible(c) { '?' } else { c };
    text.chars().map(shown).collect()
}

/// Characters that turn the order of others around, or that nobody sees.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The same for JSON: programs read what was there, and a terminal does nothing. Such characters stand
/// inside of strings only, apart from the ends of lines.
pub(crate) fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !c.is_control() && !is_invisible(c) {
            text.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
    text
}

fn name_of(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    short(&name.to_string_lossy())
}

fn user() -> String {
    let id = getuid().as_raw();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    short(&user_of(&users, id).unwrap_or_else(|| format!("uid {id}")))
}

fn user_of(users: &str, id: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

fn short(text: &str) -> String {
    let mut text = printable(text);
    while text.len() > MOST_BYTES {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(command: &str) -> Who {
        Who { host: "web-3".into(), user: "anna".into(), pid: 4_711, command: command.into() }
    }

    fn note(text: &str) -> Note {
        let mut note = Note::default();
        note.text = text.into();
        note
    }

    #[test]
    fn is_read_back_and_never_too_long() {
        let who = who("backup.sh");
        assert_eq!(Who::read(&note(&who.note())), Some(who.clone()));
        assert_eq!(shown(&note(&who.note())), "anna@web-3, pid 4711, backup.sh");
        let quotes = short(&"\"".repeat(1_000));
        let longest =
            Who { host: quotes.clone(), user: quotes.clone(), pid: u64::MAX, command: quotes };
        assert!(longest.note().len() <= MAX_NOTE_BYTES);
        assert_eq!(Who::read(&note(&longest.note())).map(|who| who.pid), Some(u64::MAX));
        assert_eq!(shown(&note(&longest.note())), format!("pid {}", u64::MAX));
        assert!(short(&"ä\0".repeat(1_000)).len() <= MOST_BYTES);
    }

    #[test]
    fn what_others_say_is_shown_but_does_nothing() {
        for text in ["worker 7", "{}", "[1]", "\"x\"", "{\"pid\":\"x\"}", "7", ""] {
            assert_eq!(Who::read(&note(text)), None, "{text}");
            assert_eq!(shown(&note(text)), text);
        }
        assert_eq!(shown(&note("\x1b[2J\u{202e}x\n\u{9b}")), "?[2J?x??");
        assert_eq!(shown(&note(&who("\x1b]0;x\x07").note())), "anna@web-3, pid 4711, ?]0;x?");
    }

    #[test]
    fn json_says_the_same_and_does_nothing() {
        let text = "a\x1b[2J\u{7f}\u{9b}\u{202e}\u{e0041}\n\"\\µ\u{1f512}";
        let json = format!("{:#}", json!({ "text": text }));
        let shown = printable_json(&json);
        assert!(
            !shown.contains(|c: char| c != '\n' && c.is_control() || is_invisible(c)),
            "{shown:?}"
        );
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), json!({ "text": text }));
        assert!(shown.contains("µ\u{1f512}"), "{shown}");
    }

    #[test]
    fn only_the_name_of_a_command_is_told() {
        assert_eq!(name_of(OsStr::new("/usr/bin/backup.sh")), "backup.sh");
        assert_eq!(name_of(OsStr::new("true")), "true");
        assert_eq!(name_of(OsStr::new("/")), "/");
    }

    #[test]
    fn users_are_found_by_their_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000::/home/anna:/bin/sh\nbroken\n";
        assert_eq!(user_of(users, 1_000).as_deref(), Some("anna"));
        assert_eq!(user_of(users, 0).as_deref(), Some("root"));
        assert_eq!(user_of(users, 7), None);
    }
}
