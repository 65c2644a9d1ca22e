//! The processes of this machine, as far as `/proc` tells of them.

use std::fs;

use rustix::process::Pid;

/// A process, as its `stat` line has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: i32,
    pub(crate) name: String,
    parent: i32,
    group: i32,
    session: i32,
    /// Ended, but not collected by its parent. It stays in its group until then.
    is_dead: bool,
}

/// All processes that can be seen. None where there is no `/proc`.
fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
            let path = is_process.then(|| format!("/proc/{}/stat", name.display()))?;
            parse(&String::from_utf8_lossy(&fs::read(path).ok()?))
        })
        .collect()
}

/// `ID (NAME) STATE PARENT GROUP SESSION …`, where the name may have spaces and brackets in it.
fn parse(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(") ")?;
    let (id, name) = head.split_once(" (")?;
    let mut tail = tail.split(' ');
    let is_dead = matches!(tail.next()?, "Z" | "X");
    let mut number = || tail.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    Some(Process { id: id.parse().ok()?, name: name.to_owned(), parent, group, session, is_dead })
}

/// Who is in a group and not dead. `None` if nobody of it can be seen, dead or alive: then the
/// system hides them.
pub(crate) fn living_members(group: Pid) -> Option<Vec<Process>> {
    living(all(), group.as_raw_nonzero().get())
}

fn living(all: Vec<Process>, group: i32) -> Option<Vec<Process>> {
    let mut members: Vec<_> = all.into_iter().filter(|process| process.group == group).collect();
    if members.is_empty() {
        return None;
    }
    members.retain(|process| !process.is_dead);
    Some(members)
}

/// Whether somebody in the same session, such as a shell with job control, can make this group go
/// on once it was stopped. The system itself stops no group that has nobody.
pub(crate) fn somebody_continues(group: Pid) -> bool {
    has_keeper(&all(), group.as_raw_nonzero().get())
}

fn has_keeper(all: &[Process], group: i32) -> bool {
    all.iter().filter(|process| process.group == group).any(|member| {
        all.iter().any(|other| {
            other.id == member.parent && other.session == member.session && other.group != group
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: i32, parent: i32, group: i32, session: i32, state: char) -> Process {
        let stat = format!("{id} (a (b) c) {state} {parent} {group} {session} 34816 5 4194304 1");
        parse(&stat).unwrap()
    }

    #[test]
    fn reads_the_line_of_a_process_with_any_name() {
        let read = process(7, 1, 5, 3, 'S');
        assert_eq!((read.id, read.name.as_str(), read.parent), (7, "a (b) c", 1));
        assert_eq!((read.group, read.session, read.is_dead), (5, 3, false));
        assert_eq!(parse("7 (sh) S 1"), None);
    }

    #[test]
    fn this_process_is_seen_by_its_name() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let all = all();
        let seen = all.iter().find(|process| process.id == me).unwrap();
        assert_eq!(seen.group, rustix::process::getpgrp().as_raw_nonzero().get());
    }

    #[test]
    fn the_dead_do_not_count_and_the_hidden_are_not_taken_for_dead() {
        let all =
            vec![process(7, 1, 5, 3, 'Z'), process(8, 1, 5, 3, 'T'), process(9, 1, 6, 3, 'Z')];
        assert_eq!(living(all.clone(), 5).unwrap(), [all[1].clone()]);
        assert_eq!(living(all.clone(), 6), Some(Vec::new()));
        assert_eq!(living(all, 4), None);
    }

    #[test]
    fn a_group_goes_on_by_the_shell_of_its_session() {
        // A shell, its job, and what a terminal started in a session of its own.
        let all = [process(3, 1, 3, 3, 'S'), process(7, 3, 7, 3, 'S'), process(9, 7, 7, 3, 'S')];
        assert!(has_keeper(&all, 7));
        assert!(!has_keeper(&all, 3), "the shell itself has nobody");
        let other_session = [process(3, 1, 3, 3, 'S'), process(7, 3, 7, 7, 'S')];
        assert!(!has_keeper(&other_session, 7));
    }
}
