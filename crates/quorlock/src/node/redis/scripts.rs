//! The Lua scripts: how they are put together from `dialect/lua`, and how they are called.

use std::sync::LazyLock;

use super::resp::{Command, part};
use quorlock_protocol::{TICKET_LEAST, TICKET_TTLS};

/// A script, and the command that calls it by its hash.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) source: String,
    /// The parts of a command that call it by its hash.
    by_hash: Vec<u8>,
}

/// Has a server forget locks that are free.
pub(super) static FORGET: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("dialect/lua/forget.lua")));
/// Has a server forget a fence that nobody can have been given.
pub(super) static FORGET_FENCES: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("dialect/lua/forget_fences.lua")));

impl Script {
    /// A script without its comments, which would be most of every greeting.
    fn new(source: &str) -> Self {
        #[cfg(all(feature = "mutation", debug_assertions))]
        let source = &*super::mutation::mutated(source);
        let lines = source.lines().map(str::trim_start);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
        let source = lines.collect::<Vec<_>>().join("\n");
        let hash = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { by_hash: [part(b"EVALSHA"), part(hash.as_bytes())].concat(), source }
    }

    /// Begins a command that calls it, up to the number of its keys. Behind that come `args` more.
    pub(super) fn call<'a>(&self, whole: bool, args: usize, out: &'a mut Vec<u8>) -> Command<'a> {
        let command = Command::new(out, 3 + args);
        if whole {
            command.arg(b"EVAL").arg(self.source.as_bytes())
        } else {
            command.written(&self.by_hash)
        }
    }
}

/// The scripts of one dialect.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) confirm: Script,
    pub(super) extend: Script,
    pub(super) release: Script,
    pub(super) leave: Script,
    pub(super) wait: Script,
    pub(super) inspect: Script,
    pub(super) set_note: Script,
    pub(super) force_release: Script,
    pub(super) list: Script,
    pub(super) mark: Script,
    pub(super) tend: Script,
}

/// What the scripts of a dialect are put together from.
pub(super) struct Sources<'a> {
    /// Stand before everything else.
    pub(super) constants: &'a str,
    /// The constants of what is done besides.
    pub(super) sweeping: &'a str,
    /// The functions that know what a record looks like.
    pub(super) record: &'a str,
    /// The common cases of two verbs.
    pub(super) acquire: &'a str,
    pub(super) release: &'a str,
}

impl Scripts {
    pub(super) fn new(sources: &Sources<'_>) -> Self {
        let Sources { constants, sweeping, record, acquire, release } = *sources;
        let put = |common: &str, behind: &[&str], verb: &str| {
            Script::new(&[constants, common, record, &behind.concat(), verb].concat())
        };
        let verb = |verb| put("", &[], verb);
        let participants = include_str!("dialect/lua/participants.lua");
        let renew = include_str!("dialect/lua/renew.lua");
        let pass_on = format!(
            "local TICKET_TTLS, TICKET_LEAST_MS = {TICKET_TTLS}, {}\n{}",
            TICKET_LEAST.as_millis(),
            include_str!("dialect/lua/pass_on.lua")
        );
        let pass_on = pass_on.as_str();
        let passing = |common, verb| put(common, &[pass_on, participants], verb);
        Self {
            acquire: put(acquire, &[], include_str!("dialect/lua/acquire.lua")),
            confirm: verb(include_str!("dialect/lua/confirm.lua")),
            extend: put("", &[participants, renew], include_str!("dialect/lua/extend.lua")),
            release: passing(release, include_str!("dialect/lua/release.lua")),
            leave: passing("", include_str!("dialect/lua/leave.lua")),
            wait: passing("", include_str!("dialect/lua/wait.lua")),
            inspect: verb(include_str!("dialect/lua/inspect.lua")),
            set_note: verb(include_str!("dialect/lua/set_note.lua")),
            force_release: put("", &[pass_on], include_str!("dialect/lua/force_release.lua")),
            list: verb(include_str!("dialect/lua/list.lua")),
            mark: verb(include_str!("dialect/lua/mark.lua")),
            tend: Script::new(
                &[constants, sweeping, include_str!("dialect/lua/tend.lua")].concat(),
            ),
        }
    }

    /// The sources of the scripts that every lock needs. A new connection loads them, so that no call
    /// has to be repeated. The others are sent with their first use.
    pub(super) fn loaded_at_greeting(&self) -> Vec<String> {
        let Self { acquire, confirm, extend, release, wait, inspect, .. } = self;
        [acquire, confirm, extend, release, wait, inspect].map(|it| it.source.clone()).into()
    }
}
