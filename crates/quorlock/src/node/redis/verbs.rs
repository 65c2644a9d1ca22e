//! Requests as commands.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::extending;
use super::inbox::{channel, named};
use super::marker;
use super::resp::{Command, part};
use super::shortcut::Shortcut;
use crate::node::{ClientId, Holder, Members, Proposal, Request, TicketNumber, Verb, noted};
use crate::settings::Settings;
use quorlock_protocol::MOST_AHEAD_US;

/// How this server wants to be spoken to.
#[derive(Debug, Clone, Default)]
pub(super) struct Dialect {
    /// Put before each name.
    pub(super) prefix: Vec<u8>,
    /// Whose word of grants comes over the connection.
    pub(super) told: Option<ClientId>,
    /// In the `strict` dialect.
    pub(super) strict: Option<Strict>,
    /// For releases, in the other one.
    pub(super) shortcut: Option<Shortcut>,
    /// Whether one script may be about several locks.
    pub(super) together: bool,
}

/// What a call is sent by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// One command that does it all, if there is one; otherwise its script.
    Shortest,
    /// The hash of its script.
    Script,
    /// The whole script.
    Source,
}

/// What the scripts of the `strict` dialect are told with each call.
#[derive(Debug, Clone)]
pub(super) struct Strict {
    scripts: Arc<Scripts>,
    /// The key of the marker.
    pub(super) marker: Vec<u8>,
    settings: Settings,
    /// The set of nodes that this client was given.
    pub(super) members: Members,
    /// Of the server at the other end of the connection.
    pub(super) run_id: String,
    /// How its marker begins if it votes.
    pub(super) id: Vec<u8>,
}

/// A record is cleared away so long after its lease has ended, and so long after its number was the time of
/// day.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Beside the locks: where the walk through the database goes on that clears old ones away.
const SWEEP: &[u8] = b":quorlock:sweep";

impl Strict {
    pub(super) fn new(settings: &Settings, members: &Members) -> Self {
        let constants = format!(
            "local BEHIND_US, AHEAD_US, QUIET_US, NUMBERS_AHEAD_US = {}, {}, {}, {MOST_AHEAD_US}\n\
             local MARKER = {}\n\
             local RECORD = '^quorlock (%d+)([ +*=-])(.*) (%d+) (%d+) (%d+)$'\n",
            micros(settings.clock_behind),
            micros(settings.clock_ahead),
            micros(marker::quiet(settings)),
            lua_string(&marker::key(settings)),
        );
        let sweeping = format!(
            "local SWEEP, ALL, OLD_US = {}, {}, {}\n",
            lua_string(&[&settings.prefix, SWEEP].concat()),
            lua_string(&pattern(&settings.prefix)),
            micros(KEPT),
        );
        let scripts = Scripts::new(&Sources {
            constants: &constants,
            sweeping: &sweeping,
            record: include_str!("lua/strict/record.lua"),
            acquire: include_str!("lua/strict/acquire.lua"),
            release: include_str!("lua/strict/release.lua"),
        });
        Self {
            scripts: Arc::new(scripts),
            marker: marker::key(settings),
            settings: settings.clone(),
            members: members.clone(),
            run_id: String::new(),
            id: Vec::new(),
        }
    }

    /// The connection is to this start of a server.
    pub(super) fn connected_to(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.run_id);
        self.id = marker::of_a_voter(run_id, &self.members).into_bytes();
    }

    /// For how long a server that may have forgotten something casts no vote.
    pub(super) fn quiet(&self) -> Duration {
        marker::quiet(&self.settings)
    }

    /// How far its clock may be ahead of ours.
    pub(super) fn ahead(&self) -> Duration {
        self.settings.clock_ahead
    }

    /// What stands before each name, fit to be shown.
    pub(super) fn prefix(&self) -> String {
        self.settings.prefix.escape_ascii().to_string()
    }

    /// So many arguments every call ends with.
    const ARGS: usize = 2;

    pub(super) fn sign(&self, command: Command<'_>, wall_us: u64) {
        command.number(wall_us).arg(&self.id);
    }
}

/// Any bytes as a string of Lua.
fn lua_string(bytes: &[u8]) -> String {
    let bytes = bytes.iter().map(|byte| format!("\\{byte:03}"));
    format!("'{}'", bytes.collect::<String>())
}

/// What was sent, for reading the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// The plain `SET` of a lock without numbers.
    Set,
    /// A script that says whether the record is ours.
    Ours,
    /// The same for so many locks, of which this is the first.
    Together(u16),
    /// A script that says whether it did something.
    Done,
    /// A command that did it, or nothing.
    Shortcut,
    Wait {
        /// Whether word of a grant to this ticket will come.
        told: bool,
    },
    Inspect,
    List,
    /// A script that tells of the marker.
    Marker,
    /// What nobody waits for, see [`Dialect::tend`].
    Tend,
}

#[derive(Debug)]
pub(super) struct Script {
    pub(super) source: String,
    /// The parts of a command that call it by its hash.
    by_hash: Vec<u8>,
}

impl Script {
    /// A script without its comments, which would be most of every greeting.
    pub(super) fn new(source: &str) -> Self {
        #[cfg(all(feature = "mutation", debug_assertions))]
        let source = &*super::mutation::mutated(source);
        let lines = source.lines().map(str::trim_start);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
        let source = lines.collect::<Vec<_>>().join("\n");
        let hash = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { by_hash: [part(b"EVALSHA"), part(hash.as_bytes())].concat(), source }
    }
}

/// The scripts of one dialect.
#[derive(Debug)]
pub(super) struct Scripts {
    acquire: Script,
    confirm: Script,
    pub(super) extend: Script,
    release: Script,
    leave: Script,
    wait: Script,
    inspect: Script,
    set_note: Script,
    force_release: Script,
    list: Script,
    mark: Script,
    tend: Script,
}

/// What the scripts of a dialect are put together from.
struct Sources<'a> {
    constants: &'a str,
    /// The constants of what is done besides.
    sweeping: &'a str,
    record: &'a str,
    /// The common cases of two verbs.
    acquire: &'a str,
    release: &'a str,
}

impl Scripts {
    fn new(sources: &Sources<'_>) -> Self {
        let Sources { constants, sweeping, record, acquire, release } = *sources;
        let put = |common: &str, behind: &[&str], verb: &str| {
            Script::new(&[constants, common, record, &behind.concat(), verb].concat())
        };
        let verb = |verb| put("", &[], verb);
        let participants = include_str!("lua/participants.lua");
        let renew = include_str!("lua/renew.lua");
        let pass_on = include_str!("lua/pass_on.lua");
        let passing = |common, verb| put(common, &[pass_on, participants], verb);
        Self {
            acquire: put(acquire, &[], include_str!("lua/acquire.lua")),
            confirm: verb(include_str!("lua/confirm.lua")),
            extend: put("", &[participants, renew], include_str!("lua/extend.lua")),
            release: passing(release, include_str!("lua/release.lua")),
            leave: passing("", include_str!("lua/leave.lua")),
            wait: passing("", include_str!("lua/wait.lua")),
            inspect: verb(include_str!("lua/inspect.lua")),
            set_note: verb(include_str!("lua/set_note.lua")),
            force_release: put("", &[pass_on], include_str!("lua/force_release.lua")),
            list: verb(include_str!("lua/list.lua")),
            mark: verb(include_str!("lua/mark.lua")),
            tend: Script::new(&[constants, sweeping, include_str!("lua/tend.lua")].concat()),
        }
    }
}

static REDLOCK: LazyLock<Scripts> = LazyLock::new(|| {
    Scripts::new(&Sources {
        constants: "",
        sweeping: "local SWEEP, ALL, OLD_US, MARKER, RECORD, BEHIND_US, AHEAD_US\n",
        record: include_str!("lua/redlock/record.lua"),
        acquire: include_str!("lua/redlock/acquire.lua"),
        release: include_str!("lua/redlock/release.lua"),
    })
});

impl Dialect {
    pub(super) fn scripts(&self) -> &Scripts {
        self.strict.as_ref().map_or_else(|| &*REDLOCK, |strict| &*strict.scripts)
    }

    /// The sources of the scripts that every lock needs. A new connection loads them, so that no call
    /// has to be repeated. The others are sent with their first use.
    pub(super) fn sources(&self) -> Vec<String> {
        let Scripts { acquire, confirm, extend, release, wait, inspect, .. } = self.scripts();
        [acquire, confirm, extend, release, wait, inspect].map(|it| it.source.clone()).into()
    }

    /// Writes the command for a request.
    pub(super) fn encode(&mut self, request: &Request<'_>, by: By, out: &mut Vec<u8>) -> Sent {
        if let Verb::Release { token, queued: false, participant: None, .. } = request.verb
            && by == By::Shortest
            && let Some(shortcut) = &mut self.shortcut
            && shortcut.is_next()
        {
            shortcut.write(&self.prefix, request, token, out);
            return Sent::Shortcut;
        }
        let source = by == By::Source;
        let scripts = self.scripts();
        let script = |script: &Script, args, out| self.script(script, source, request, args, out);
        let (command, sent) = match request.verb {
            Verb::Acquire { token, ttl, proposal: None } if self.strict.is_none() => {
                Command::new(out, 6)
                    .written(b"$3\r\nSET\r\n")
                    .arg2(&self.prefix, request.name.as_bytes())
                    .arg(&token.text())
                    .written(b"$2\r\nNX\r\n$2\r\nPX\r\n")
                    .number(millis(ttl));
                return Sent::Set;
            }
            Verb::Acquire { token, ttl, proposal } => {
                let (least, block) = numbers(proposal);
                let command = script(&scripts.acquire, 4, out).arg(&token.text());
                // As text it is what the server stores, unless it knows a higher one.
                let last = least.saturating_add(block.saturating_sub(1));
                (command.number(millis(ttl)).number(last).number(block), Sent::Ours)
            }
            Verb::Confirm { token, fence: number } => {
                (script(&scripts.confirm, 2, out).arg(&token.text()).number(number), Sent::Ours)
            }
            verb @ Verb::Extend { .. } => {
                let command = script(&scripts.extend, extending::ARGS, out);
                (extending::arguments(command, verb), Sent::Ours)
            }
            Verb::Release { token, next, participant: Some(participant), .. } => {
                let command = script(&scripts.leave, 3, out).arg(&token.text()).number(next);
                (command.arg(participant.to_string().as_bytes()), Sent::Done)
            }
            Verb::Release { token, next, queued, .. } => {
                // A record of the strict dialect tells by itself.
                let asks = queued && self.strict.is_none();
                let args = 2 + usize::from(asks);
                let command = script(&scripts.release, args, out).arg(&token.text()).number(next);
                (if asks { command.arg(b"queued") } else { command }, Sent::Done)
            }
            Verb::Wait { token, ttl, ticket, yielding, proposal } => {
                let (number, kind) = match ticket.number {
                    TicketNumber::New(least) => (least, &b"new"[..]),
                    TicketNumber::Agreed(number) => (number, &b"agreed"[..]),
                };
                let (least, block) = numbers(proposal);
                let command = script(&scripts.wait, 10, out)
                    .arg(&token.text())
                    .number(millis(ttl))
                    .arg(&channel(&self.prefix, ticket.client))
                    .arg(&named(&ticket))
                    .number(ticket.sent.as_nanos())
                    .number(number)
                    .arg(kind)
                    .arg(if yielding { b"yield" } else { b"keep" })
                    .number(least)
                    .number(block);
                (command, Sent::Wait { told: self.told == Some(ticket.client) })
            }
            Verb::Inspect => (script(&scripts.inspect, 0, out), Sent::Inspect),
            Verb::SetNote { token, note, keep } => {
                let text = token.text();
                let noted =
                    if note.is_empty() { String::new() } else { noted(Holder::of(&text), note) };
                let command = script(&scripts.set_note, 3, out).arg(&text).arg(noted.as_bytes());
                (command.number(millis(keep)), Sent::Done)
            }
            Verb::ForceRelease { holder } => {
                let command =
                    script(&scripts.force_release, 1, out).arg(holder.to_string().as_bytes());
                (command, Sent::Done)
            }
            Verb::List { from } => {
                let from = if from.is_empty() { b"0" } else { from };
                let command = self
                    .call(&scripts.list, source, 3, out)
                    .number(0)
                    .arg(from)
                    .arg(&pattern(&self.prefix))
                    .number(self.prefix.len() as u64);
                (command, Sent::List)
            }
            // Nothing is kept in that dialect. The reply comes in its turn, whatever it is.
            Verb::Look | Verb::Mark(_) if self.strict.is_none() => {
                Command::new(out, 1).arg(b"PING");
                return Sent::Marker;
            }
            Verb::Look => {
                (self.call(&scripts.mark, source, 1, out).number(0).arg(b"look"), Sent::Marker)
            }
            Verb::Mark(mark) => {
                let command = self.call(&scripts.mark, source, 5, out).number(0).arg(b"mark");
                let (run_id, settings) = match &self.strict {
                    Some(strict) => (strict.run_id.as_str(), &strict.settings),
                    None => ("", &Settings::default()),
                };
                let marker::Written { seen, head, after_us, tail } =
                    marker::write(mark, run_id, settings);
                let after_us = u64::try_from(after_us).unwrap_or(u64::MAX);
                let command = command.arg(seen).arg(head.as_bytes()).number(after_us);
                (command.arg(tail.as_bytes()), Sent::Marker)
            }
        };
        if let Some(strict) = &self.strict {
            strict.sign(command, request.wall_us);
        }
        sent
    }

    /// Writes the command that clears old locks away, at this time of day, and asks how the server is set up
    /// if it is given how many keys that had thrown away before. With its whole source: it is seldom sent.
    pub(super) fn tend(&self, wall_us: u64, evicted: Option<u64>, out: &mut Vec<u8>) {
        let source = self.scripts().tend.source.as_bytes();
        let command = Command::new(out, 5).arg(b"EVAL").arg(source).number(0).number(wall_us);
        match evicted {
            Some(evicted) => command.number(evicted),
            None => command.arg(b""),
        };
    }

    /// A script with the lock as its key.
    fn script<'a>(
        &self,
        script: &Script,
        source: bool,
        request: &Request<'_>,
        args: usize,
        out: &'a mut Vec<u8>,
    ) -> Command<'a> {
        let name = request.name.as_bytes();
        self.call(script, source, 1 + args, out).number(1).arg2(&self.prefix, name)
    }

    /// A script, up to the number of its keys.
    pub(super) fn call<'a>(
        &self,
        script: &Script,
        source: bool,
        args: usize,
        out: &'a mut Vec<u8>,
    ) -> Command<'a> {
        let signature = if self.strict.is_some() { Strict::ARGS } else { 0 };
        let command = Command::new(out, 3 + args + signature);
        if source {
            command.arg(b"EVAL").arg(script.source.as_bytes())
        } else {
            command.written(&script.by_hash)
        }
    }
}

/// What a holder wants; a block of none if it wants no numbers.
fn numbers(proposal: Option<Proposal>) -> (u64, u64) {
    proposal.map_or((0, 0), |Proposal { least, block }| (least, u64::from(block)))
}

/// What matches all that starts with `prefix`.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for &byte in prefix {
        if br"*?[]^-\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// Milliseconds, rounded up: a node may keep a record longer than it is believed, never shorter.
pub(super) fn millis(duration: Duration) -> u64 {
    let part = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
    duration.as_secs().saturating_mul(1_000).saturating_add(part)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_millisecond_is_a_whole_one() {
        for (duration, ms) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(7), 7),
            (Duration::new(3, 999_000_001), 4_000),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(millis(duration), ms, "{duration:?}");
        }
    }

    #[test]
    fn a_prefix_matches_itself_alone() {
        assert_eq!(pattern(b""), b"*");
        assert_eq!(pattern(br"a*[b]?\^-"), br"a\*\[b\]\?\\\^\-*");
    }
}
