//! What is to be done: the arguments, checked and put into the terms of the library.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::{Builder, Dialect, Error, Locker, Settings};
use rustix::process::Signal;

use crate::acquire::Acquire;
use crate::args::{
    Action, Args, ClusterArgs, CompletionsArgs, DoctorArgs, ManArgs, RunArgs, StatusArgs,
};
use crate::bench::Bench;
use crate::config::{self, Config, Login, NodeEntry, Promises};
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::extend::Extend;
use crate::grace;
use crate::init::Init;
use crate::list::List;
use crate::nodes::Nodes;
use crate::note;
use crate::release::Release;
use crate::simulate::Simulate;

/// How long a lock lasts that a script holds, unless it says otherwise.
const SCRIPT_TTL: Duration = Duration::from_secs(30);

/// What is to be done.
pub(crate) enum Plan {
    Run(Run),
    Acquire(Acquire),
    Extend(Extend),
    Release(Release),
    Status(Status),
    List(List),
    Init(Init),
    Nodes(Nodes),
    Doctor(Doctor),
    Bench(Bench),
    Simulate(Simulate),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// A command to be run under a lock.
pub(crate) struct Run {
    pub(crate) cluster: Cluster,
    pub(crate) name: OsString,
    /// The longest time to wait for the lock; `None` without end.
    pub(crate) wait: Option<Duration>,
    /// The exit code if it is taken, or was not free in time, instead of one for each.
    pub(crate) conflict_code: Option<u8>,
    /// What others may know of this holder.
    pub(crate) note: String,
    /// The longest time for which the lock may be held.
    pub(crate) max_hold: Option<Duration>,
    /// The shortest time for which the lock is held, be the command done or not.
    pub(crate) hold_at_least: Option<Duration>,
    /// What the command is ended with, and how long later with SIGKILL.
    pub(crate) signal: Signal,
    pub(crate) kill_after: Option<Duration>,
    /// Whether the lock is released with the command itself, whatever of it runs on.
    pub(crate) leave_behind: bool,
    /// For whom the lock is taken, if somebody was named.
    pub(crate) owner: Option<String>,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

/// A lock to be looked at.
pub(crate) struct Status {
    pub(crate) cluster: Cluster,
    pub(crate) name: OsString,
    pub(crate) json: bool,
    /// Whether to look again and again.
    pub(crate) watch: bool,
}

/// Nodes to be looked over.
pub(crate) struct Doctor {
    pub(crate) cluster: Cluster,
    /// How the names of the locks that are tried out start.
    pub(crate) name: OsString,
    pub(crate) json: bool,
}

/// The nodes, and the terms on which locks live there. Not `Debug`: the URLs may hold passwords.
pub(crate) struct Cluster {
    urls: Vec<String>,
    prefix: OsString,
    pub(crate) ttl: Duration,
    pub(crate) promises: Promises,
    /// How long to wait for a lock if the command line says nothing of it.
    pub(crate) wait: Option<Duration>,
    /// Whether locks are to carry a note about their holder, if the file says so.
    pub(crate) note: Option<bool>,
    node_limit: Option<Duration>,
    connect_limit: Option<Duration>,
}

impl Plan {
    pub(crate) fn new(args: Args) -> Result<Self, Failed> {
        match args.action {
            Action::Run(args) => Run::new(args).map(Self::Run),
            Action::Acquire(args) => Acquire::new(args).map(Self::Acquire),
            Action::Extend(args) => Extend::new(args).map(Self::Extend),
            Action::Release(args) => Release::new(args).map(Self::Release),
            Action::List(args) => List::new(args).map(Self::List),
            Action::Init(args) => Init::new(args).map(Self::Init),
            Action::Nodes(args) => Nodes::new(args).map(Self::Nodes),
            Action::Status(args) => Status::new(args).map(Self::Status),
            Action::Doctor(args) => Doctor::new(args).map(Self::Doctor),
            Action::Bench(args) => Bench::new(args).map(Self::Bench),
            Action::Simulate(args) => Simulate::new(args).map(Self::Simulate),
            Action::Man(args) => Ok(Self::Man(args)),
            Action::Completions(args) => Ok(Self::Completions(args)),
        }
    }
}

impl Run {
    fn new(args: RunArgs) -> Result<Self, Failed> {
        check_times(&args)?;
        let mut cluster = Cluster::new(args.cluster, args.ttl)?;
        // A lock that may not be held for as long as its TTL needs no longer one.
        if let Some(longest) = args.max_hold {
            cluster.ttl = cluster.ttl.min(longest.saturating_add(cluster.margin()));
        }
        let command = match args.line {
            Some(line) => vec!["sh".into(), "-c".into(), line],
            None => args.command,
        };
        let mut command = command.into_iter();
        let Some(program) = command.next() else {
            let message = "there is no command; write it after --, as in quorlock run NAME -- CMD";
            return Err(Failed::new(exit::MISUSE, message));
        };
        let (wait, file_note) = (args.wait.or(cluster.wait), cluster.note);
        Ok(Self {
            cluster,
            name: args.name,
            wait: if args.nonblock { Some(Duration::ZERO) } else { wait },
            conflict_code: args.conflict_exit_code,
            note: note::of_this_process(&args.note, file_note, &program)?,
            max_hold: args.max_hold,
            hold_at_least: args.hold_at_least,
            signal: args.signal,
            kill_after: args.kill_after,
            leave_behind: args.leave_behind,
            owner: args.owner,
            program,
            args: command.collect(),
        })
    }
}

/// Times that exclude one another.
fn check_times(args: &RunArgs) -> Result<(), Failed> {
    let Some(longest) = args.max_hold else { return Ok(()) };
    let conflict = |option, time| {
        let message = format!(
            "{option} {} does not fit into --max-hold {}; use less for the one, or more for the \
             other",
            shown(time),
            shown(longest)
        );
        Err(Failed::new(exit::MISUSE, message))
    };
    match (args.kill_after, args.hold_at_least) {
        (Some(after), _) if after >= longest * 3 / 4 => conflict("--kill-after", after),
        (_, Some(least)) if least > longest * 3 / 4 => conflict("--hold-at-least", least),
        _ => Ok(()),
    }
}

impl Status {
    fn new(args: StatusArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, None)?;
        Ok(Self { cluster, name: args.name, json: args.json, watch: args.watch })
    }
}

impl Doctor {
    fn new(args: DoctorArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, args.ttl)?;
        Ok(Self { cluster, name: args.name, json: args.json })
    }
}

impl Cluster {
    /// What the command line leaves open is looked up in the environment, then in the file.
    pub(crate) fn new(args: ClusterArgs, ttl: impl Into<Option<Duration>>) -> Result<Self, Failed> {
        Self::with_login(args, ttl, None).map(|(cluster, _)| cluster)
    }

    /// The nodes as they are configured, and the URL of another one with its login.
    pub(crate) fn with_another(
        args: ClusterArgs,
        other: Option<&str>,
    ) -> Result<(Self, Option<String>), Failed> {
        Self::with_login(args, None, other)
    }

    fn with_login(
        args: ClusterArgs,
        ttl: impl Into<Option<Duration>>,
        other: Option<&str>,
    ) -> Result<(Self, Option<String>), Failed> {
        let config = Config::load(args.config.as_deref())?;
        let promises = Promises::new(&args.dialect, &config)?;
        let ttl = config::duration(ttl.into(), "QUORLOCK_TTL", config.ttl)?
            .unwrap_or(Settings::default().ttl.min(promises.max_ttl));
        let wait = config::duration(None, "QUORLOCK_WAIT", config.wait)?;
        let node_limit =
            config::duration(args.node_limit, "QUORLOCK_NODE_LIMIT", config.node_limit)?;
        let connect_limit =
            config::duration(args.connect_limit, "QUORLOCK_CONNECT_LIMIT", config.connect_limit)?;
        let prefix = args.prefix.or_else(|| config::text_variable("QUORLOCK_PREFIX"));
        let prefix = prefix.or_else(|| config.prefix.clone().map(Into::into)).unwrap_or_default();
        let login = Login::new(&config)?;
        let nodes = if !args.nodes.is_empty() {
            named(&args.nodes)?
        } else if !config.nodes.is_empty() {
            config.nodes
        } else {
            let url = quorlock::node::sqlite::default_url()?;
            vec![NodeEntry { url, ..NodeEntry::default() }]
        };
        let urls = nodes.iter().map(|node| login.complete(node)).collect::<Result<_, _>>()?;
        let most = promises.max_ttl;
        if ttl > most {
            return Err(Failed::new(
                exit::MISUSE,
                format!(
                    "a TTL of {} is above the maximum of {} (--max-ttl, max_ttl); use a shorter one, \
                     and extend it, as quorlock run does by itself",
                    shown(ttl),
                    shown(most)
                ),
            ));
        }
        let other = other
            .map(|url| login.complete(&NodeEntry { url: url.to_owned(), ..NodeEntry::default() }));
        let note = config.note;
        let cluster = Self { urls, prefix, ttl, promises, wait, note, node_limit, connect_limit };
        Ok((cluster, other.transpose()?))
    }

    /// For a lock whose holder does not extend it by itself: unless said otherwise, it lasts long.
    pub(crate) fn for_scripts(args: ClusterArgs, ttl: Option<Duration>) -> Result<Self, Failed> {
        let mut cluster = Self::new(args, ttl)?;
        cluster.ttl = ttl.unwrap_or(SCRIPT_TTL.min(cluster.promises.max_ttl));
        Ok(cluster)
    }

    /// What is taken off the end of each lease.
    fn margin(&self) -> Duration {
        if self.has_markers() { self.promises.margin() } else { Duration::ZERO }
    }

    /// Whether some of the nodes have to be told that they are new.
    pub(crate) fn has_markers(&self) -> bool {
        let is_file = |url: &String| url.starts_with("sqlite:");
        self.promises.dialect == Dialect::Strict && !self.urls.iter().all(is_file)
    }

    /// A locker with these settings, yet to be connected.
    pub(crate) fn builder(&self) -> Builder {
        let mut builder = Locker::builder()
            .nodes(&self.urls)
            .prefix(self.prefix.as_bytes())
            .ttl(self.ttl)
            .loss_lead(grace::lead(self.ttl));
        if let Some(limit) = self.node_limit {
            builder = builder.node_limit(limit);
        }
        if let Some(limit) = self.connect_limit {
            builder = builder.connect_limit(limit);
        }
        self.promises.apply(builder)
    }

    pub(crate) async fn connect(&self) -> Result<Locker, Error> {
        self.builder().connect().await
    }
}

/// The nodes that were named. To name none is not the same as to say nothing: whoever sets a
/// variable to nothing by mistake must not get a lock that other machines do not see.
fn named(nodes: &[String]) -> Result<Vec<NodeEntry>, Failed> {
    let urls = nodes.iter().map(|url| url.trim()).filter(|url| !url.is_empty());
    let nodes: Vec<_> =
        urls.map(|url| NodeEntry { url: url.to_owned(), ..NodeEntry::default() }).collect();
    if nodes.is_empty() {
        return Err(Failed::new(
            exit::MISUSE,
            "the list of nodes is empty; use --node redis://HOST, set QUORLOCK_NODES to a list with \
             commas such as redis://a,redis://b,redis://c, or leave both away for a lock on this \
             machine alone",
        ));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(args: &str) -> Result<Plan, Failed> {
        // No file of whoever runs the tests.
        let args = args.replacen("run ", "run --config=/dev/null ", 1);
        let args = args.replacen("status ", "status --config=/dev/null ", 1);
        Plan::new(Args::try_parse_from(args.split(' ')).ok().unwrap())
    }

    fn run(args: &str) -> Run {
        match plan(args) {
            Ok(Plan::Run(run)) => run,
            _ => panic!("not a run: {args}"),
        }
    }

    #[test]
    fn nodes_are_listed_repeated_or_both() {
        let run = run("quorlock run --node redis://a,redis://b, --node redis://c x -- cmd -n arg");
        assert_eq!(run.cluster.urls, ["redis://a", "redis://b", "redis://c"]);
        assert_eq!((run.program, run.args), ("cmd".into(), vec!["-n".into(), "arg".into()]));
    }

    #[test]
    fn waiting_is_without_end_for_a_time_or_not_at_all() {
        let wait = |option| run(&format!("quorlock run {option} --node redis://a x -- cmd")).wait;
        assert_eq!(wait("--ttl=10s"), None);
        assert_eq!(wait("-w1m"), Some(Duration::from_secs(60)));
        assert_eq!(wait("-n"), Some(Duration::ZERO));
    }

    #[test]
    fn a_line_is_for_the_shell() {
        let run = run("quorlock run --node redis://a x -c true;false");
        assert_eq!(run.program, "sh");
        assert_eq!(run.args, ["-c", "true;false"]);
    }

    #[test]
    fn a_lock_that_may_not_be_held_for_its_ttl_gets_a_shorter_one() {
        let ttl = |option| run(&format!("quorlock run {option} x -- cmd")).cluster.ttl;
        assert_eq!(ttl("--node sqlite:a --max-hold 4s"), Duration::from_secs(4));
        assert_eq!(ttl("--node redis://a --dialect redlock --max-hold 4s"), Duration::from_secs(4));
        // What the strict dialect takes off the end has to be there.
        assert_eq!(ttl("--node redis://a --max-hold 4s"), Duration::from_millis(4_500));
        assert_eq!(ttl("--node redis://a --max-hold 1h"), Duration::from_secs(10));
    }

    #[test]
    fn times_that_exclude_one_another_are_refused() {
        for option in ["--kill-after 10s", "--hold-at-least 1m"] {
            let args = format!("quorlock run --node redis://a --max-hold 10s {option} x -- cmd");
            let refusal = plan(&args).err().unwrap();
            assert_eq!(refusal.code, 78);
            let names_both = refusal.message.contains(&option[..12]);
            assert!(names_both && refusal.message.contains("--max-hold"), "{}", refusal.message);
        }
    }

    #[test]
    fn refusals_say_what_to_write() {
        let refusal = |args| plan(args).err().unwrap();
        let none = refusal("quorlock status --node , x");
        assert_eq!(none.code, 78);
        assert!(none.message.contains("--node") && none.message.contains("QUORLOCK_NODES"));
        let long = refusal("quorlock run --ttl 5m --node redis://a x -- cmd").message;
        assert!(long.contains("5m0s") && long.contains("30.0s"), "{long}");
    }
}
