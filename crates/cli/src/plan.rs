//! What is to be done: the arguments, checked and put into the terms of the library.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use quorlock::admin::MemberState;
use quorlock::{Builder, Error, Locker, Settings, Status as LockStatus};
use rustix::process::Signal;

use crate::acquire::Acquire;
use crate::args::{
    Action, Args, ClusterArgs, CompletionsArgs, DoctorArgs, ManArgs, RunArgs, StatusArgs,
};
use crate::bench::Bench;
use crate::config::{Config, Login, Lookup, NodeEntry, Origins, Promises, without_password};
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::extend::Extend;
use crate::grace;
use crate::init::Init;
use crate::init_line;
use crate::list::List;
use crate::nodes::Nodes;
use crate::note;
use crate::release::Release;
use crate::simulate::Simulate;
use crate::warnings::HeldBack;

/// How long a lock lasts that a script holds, unless it says otherwise.
const SCRIPT_TTL: Duration = Duration::from_secs(30);

/// How long votes are waited for besides the time for which nodes that were restarted cast none.
const BESIDES_QUARANTINE: Duration = Duration::from_secs(5);
/// And so long at the most, unless more is asked for: who has a longest TTL of an hour does not mean that.
const LONGEST_FOR_VOTES: Duration = Duration::from_secs(120);

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
    /// The longest time to wait for votes that are missing, by who does not wait for the lock.
    pub(crate) votes_within: Duration,
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
    pub(crate) ttl: Duration,
    /// How long before the end of the lease its holder is notified, if that is not left to the TTL.
    lead: Option<Duration>,
    pub(crate) promises: Promises,
    /// How long to wait for a lock if the command line says nothing of it.
    pub(crate) wait: Option<Duration>,
    /// How long to wait for votes, by who does not wait for a lock, if the command line says nothing of it.
    votes_within: Option<Duration>,
    /// Whether locks are to carry a note about their holder, if the file says so.
    pub(crate) note: Option<bool>,
    node_limit: Option<Duration>,
    connect_limit: Option<Duration>,
    /// Where each setting was found.
    pub(crate) origins: Origins,
}

/// Whether a node is a database, which knows one dialect alone, and has to be set up with SQL.
fn is_database(url: &str) -> bool {
    is_mysql(url) || ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

fn is_mysql(url: &str) -> bool {
    ["mysql://", "mariadb://"].iter().any(|scheme| url.starts_with(scheme))
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

impl Plan {
    /// The one lock that it is about, if it is about one.
    pub(crate) fn lock(&self) -> Option<&OsStr> {
        match self {
            Self::Run(run) => Some(&run.name),
            Self::Acquire(acquire) => Some(&acquire.name),
            Self::Extend(extend) => Some(&extend.name),
            Self::Release(release) => Some(&release.name),
            Self::Status(status) => Some(&status.name),
            _ => None,
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
        if let Some(lead) = args.end_before {
            cluster.tell_before(lead)?;
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
            name: args.name,
            wait: if args.nonblock { Some(Duration::ZERO) } else { wait },
            votes_within: args.votes_within.unwrap_or(cluster.votes_within()),
            cluster,
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
        let mut lookup = Lookup::new(&config);
        let file_nodes = (!config.nodes.is_empty()).then_some(&config.nodes);
        let said = if args.nodes.is_empty() { None } else { Some(named(&args.nodes)?) };
        let listed = |value: OsString| {
            let value =
                value.into_string().map_err(|_| "this is not UTF-8; write it so".to_owned())?;
            named(&[value]).map_err(|failed| failed.message)
        };
        let nodes = match lookup.setting("nodes", said, file_nodes.cloned(), listed)? {
            Some(nodes) => nodes,
            None => {
                let url = quorlock::node::default_url()?;
                vec![NodeEntry { url, ..NodeEntry::default() }]
            }
        };
        let promises = Promises::new(&args.dialect, args.prefix, &mut lookup)?;
        let ttl = lookup
            .duration("ttl", ttl.into(), config.ttl)?
            .unwrap_or(Settings::default().ttl.min(promises.max_ttl));
        let wait = lookup.duration("wait", None, config.wait)?;
        let votes_within = lookup.duration("votes_within", None, config.votes_within)?;
        let node_limit = lookup.duration("node_limit", args.node_limit, config.node_limit)?;
        let connect_limit =
            lookup.duration("connect_limit", args.connect_limit, config.connect_limit)?;
        let login = Login::new(&mut lookup)?;
        let origins = lookup.into_origins();
        let urls: Vec<_> =
            nodes.iter().map(|node| login.complete(node)).collect::<Result<_, _>>()?;
        let promises = promises.with_urls(&urls);
        let most = promises.max_ttl;
        if ttl.is_zero() {
            let message = "a TTL of zero (--ttl, ttl) is no lock at all: it is how long a lock lasts that nobody \
                           extends; leave it away, or write such as 10s. quorlock run extends its lock for as \
                           long as the command runs";
            return Err(Failed::new(exit::MISUSE, message));
        }
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
        init_line::set(init_line::of(&nodes, &promises, &origins));
        let cluster = Self {
            urls,
            ttl,
            lead: None,
            promises,
            wait,
            votes_within,
            note: config.note,
            node_limit,
            connect_limit,
            origins,
        };
        Ok((cluster, other.transpose()?))
    }

    /// For a lock whose holder does not extend it by itself: unless said otherwise, it lasts long.
    pub(crate) fn for_scripts(args: ClusterArgs, ttl: Option<Duration>) -> Result<Self, Failed> {
        let mut cluster = Self::new(args, ttl)?;
        cluster.ttl = ttl.unwrap_or(SCRIPT_TTL.min(cluster.promises.max_ttl));
        Ok(cluster)
    }

    /// How long before the end of the lease its holder is notified.
    pub(crate) fn lead(&self) -> Duration {
        self.lead.unwrap_or(grace::lead(self.ttl))
    }

    /// Has the holder notified so long before the end of the lease.
    ///
    /// # Errors
    /// If too little of the lease would be left before that to extend it, or too little after it to end a command.
    fn tell_before(&mut self, lead: Duration) -> Result<(), Failed> {
        let most = self.ttl.saturating_sub(self.margin()) / 2;
        let refuse = |problem: String| Err(Failed::new(exit::MISUSE, problem));
        if lead > most {
            let needed = lead.saturating_mul(2).saturating_add(self.margin());
            let beyond =
                if needed > self.promises.max_ttl { " (with a longer --max-ttl)" } else { "" };
            return refuse(format!(
                "--end-before {} does not fit into a TTL of {}, which has to be extended before that; use {} at \
                 the most, or a TTL of at least {}s{beyond}",
                shown(lead),
                shown(self.ttl),
                shown(most),
                needed.as_secs_f64().ceil()
            ));
        }
        if lead < grace::lead(self.ttl) {
            return refuse(format!(
                "--end-before {} is less than what it takes to end a command for certain with a TTL of {}; use at \
                 least {}, or leave it away",
                shown(lead),
                shown(self.ttl),
                shown(grace::lead(self.ttl))
            ));
        }
        self.lead = Some(lead);
        Ok(())
    }

    /// What is taken off the end of each lease.
    fn margin(&self) -> Duration {
        if self.has_markers() { self.promises.margin() } else { Duration::ZERO }
    }

    /// How long a caller that does not wait for the lock waits for votes, unless it says: until nodes vote again that
    /// were all restarted, and somewhat longer.
    fn votes_within(&self) -> Duration {
        if let Some(within) = self.votes_within {
            return within;
        }
        let quiet = if self.has_markers() { self.promises.quarantine() } else { Duration::ZERO };
        quiet.saturating_add(BESIDES_QUARANTINE).min(LONGEST_FOR_VOTES)
    }

    /// Whether some of the nodes have to be marked as new.
    pub(crate) fn has_markers(&self) -> bool {
        let redis = self.promises.redis.has_markers();
        self.urls.iter().any(|url| quorlock::node::has_marker(url) && (redis || is_database(url)))
    }

    /// The SQL that sets up the nodes that are databases, one after the other.
    pub(crate) fn setup_sql(&self) -> impl Iterator<Item = Result<String, quorlock::Error>> {
        let urls = self.urls.iter().filter(|url| is_database(url));
        urls.map(|url| match is_mysql(url) {
            true => quorlock::node::mysql::setup_sql(url),
            false => quorlock::node::postgres::setup_sql(url),
        })
    }

    /// Whether some of the nodes are of a kind whose locks lie there in one dialect or another.
    pub(crate) fn has_dialect(&self) -> bool {
        self.urls.iter().any(|url| quorlock::node::has_marker(url) && !is_database(url))
    }

    /// The URLs of the nodes, without passwords.
    pub(crate) fn shown_nodes(&self) -> Vec<String> {
        self.urls.iter().map(|url| without_password(url)).collect()
    }

    /// What stands before the names of all locks; empty for nothing.
    pub(crate) fn prefix(&self) -> String {
        String::from_utf8_lossy(&self.promises.redis.prefix).into_owned()
    }

    /// If too few nodes vote, and some of them belong to another set of nodes or serve clients with other settings, it
    /// is of no use to wait.
    pub(crate) async fn refuse_other_set(&self, status: &LockStatus) -> Result<(), Failed> {
        if !self.has_markers() || status.quarantine().is_none() {
            return Ok(());
        }
        let nodes = self.builder().admin().members().await?.nodes;
        let refusal = nodes.iter().find_map(|node| match &node.state {
            MemberState::Other(why) => Some((&node.node, why.clone())),
            MemberState::Closed { successor } => {
                Some((&node.node, format!("its set was replaced by {}", successor.join(", "))))
            }
            _ => None,
        });
        match refusal {
            Some((node, why)) => Err(Failed::new(exit::MISUSE, format!("node {node}: {why}"))),
            None => Ok(()),
        }
    }

    /// A locker with these settings, yet to be connected.
    pub(crate) fn builder(&self) -> Builder {
        let mut builder = Locker::builder().nodes(&self.urls).ttl(self.ttl).loss_lead(self.lead());
        if let Some(limit) = self.node_limit {
            builder = builder.node_limit(limit);
        }
        if let Some(limit) = self.connect_limit {
            builder = builder.connect_limit(limit);
        }
        self.promises.apply(builder)
    }

    /// Connects to the nodes. What is said of single ones meanwhile stands in the error, if there is one.
    pub(crate) async fn connect(&self) -> Result<Locker, Error> {
        let said = HeldBack::new();
        let locker = self.builder().connect().await?;
        said.flush();
        Ok(locker)
    }

    /// The same for another attempt: what there is to be said of single nodes was said before.
    pub(crate) async fn connect_again(&self) -> Result<Locker, Error> {
        let _unsaid = HeldBack::new();
        self.builder().connect().await
    }

    /// For looking at locks, however few nodes are there.
    pub(crate) async fn connect_to_look(&self) -> Result<Locker, Error> {
        self.builder().connect_to_look().await
    }
}

/// The nodes that were named, in lists or one by one. To name none is not the same as to say nothing: a variable
/// that is empty by mistake must not lead to a lock that other machines do not see.
fn named(lists: &[String]) -> Result<Vec<NodeEntry>, Failed> {
    let urls = lists.iter().flat_map(|list| quorlock::node::split_urls(list));
    let nodes: Vec<_> = urls.map(|url| NodeEntry { url, ..NodeEntry::default() }).collect();
    if nodes.is_empty() {
        return Err(Failed::new(
            exit::MISUSE,
            "the list of nodes is empty; use --node redis://HOST, set QUORLOCK_NODES to a list with \
             commas such as redis://a,redis://b,redis://c, or leave both away for a lock among the \
             processes of this user on this machine",
        ));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(args: &str) -> Result<Plan, Failed> {
        // No file of the user who runs the tests.
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
    fn votes_are_waited_for_until_nodes_that_were_restarted_vote_again() {
        let votes = |options| run(&format!("quorlock run {options} x -- cmd")).votes_within;
        assert_eq!(votes("-n --node redis://a"), Duration::from_millis(35_500));
        assert_eq!(votes("-n --node redis://a --max-ttl 10s"), Duration::from_millis(15_500));
        assert_eq!(votes("-n --node redis://a --max-ttl 1h"), Duration::from_secs(120));
        assert_eq!(votes("-n --node redis://a --dialect redlock"), Duration::from_secs(5));
        assert_eq!(votes("-n --node redis://a --votes-within 1h"), Duration::from_secs(3_600));
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
    fn how_long_before_the_end_a_command_is_told_follows_the_ttl_or_is_said() {
        let lead = |options| run(&format!("quorlock run {options} x -- cmd")).cluster.lead();
        assert_eq!(lead("--node sqlite:a --ttl 30s"), Duration::from_secs(5));
        assert_eq!(lead("--node sqlite:a --ttl 30s --end-before 10s"), Duration::from_secs(10));
        for (options, says) in [
            ("--end-before 10s", "--end-before 10.0s does not fit into a TTL of 10.0s"),
            ("--end-before 10s", "use 4.7s at the most, or a TTL of at least 21s"),
            ("--end-before 20s --ttl 30s", "at least 41s (with a longer --max-ttl)"),
            ("--end-before 1s", "is less than what it takes to end a command for certain"),
            ("--end-before 3s --max-hold 4s", "does not fit into a TTL of 4.5s"),
        ] {
            let args = format!("quorlock run --node redis://a {options} x -- cmd");
            let refusal = plan(&args).err().expect("a refusal");
            assert_eq!(refusal.code, 78);
            assert!(refusal.message.contains(says), "{options}: {}", refusal.message);
        }
    }

    #[test]
    fn the_line_for_new_nodes_has_what_was_said_here_and_no_password() {
        let said = |options: &str| {
            let cluster = run(&format!("quorlock run {options} x -- cmd")).cluster;
            let node = |url: &String| NodeEntry { url: url.clone(), ..NodeEntry::default() };
            let nodes: Vec<_> = cluster.urls.iter().map(node).collect();
            init_line::of(&nodes, &cluster.promises, &cluster.origins)
        };
        assert_eq!(
            said("--node redis://:secret@a,redis://u@b --prefix a*: --max-ttl 20s"),
            "quorlock init --node redis://a,redis://u@b --prefix 'a*:' --max-ttl 20000ms"
        );
        assert_eq!(said("--node redis://a"), "quorlock init --node redis://a");
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
