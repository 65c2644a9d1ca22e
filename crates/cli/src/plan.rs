//! What is to be done: the arguments, checked and put into the terms of the library.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::{Builder, Error, Locker, Settings};

use crate::args::{
    Action, Args, ClusterArgs, CompletionsArgs, DoctorArgs, ManArgs, RunArgs, StatusArgs,
};
use crate::config::{self, Config, Login, NodeEntry};
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::grace;

/// What is to be done.
pub(crate) enum Plan {
    Run(Run),
    Status(Status),
    Doctor(Doctor),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// A command to be run under a lock.
pub(crate) struct Run {
    pub(crate) cluster: Cluster,
    pub(crate) name: OsString,
    /// The longest time to wait for the lock; `None` without end.
    pub(crate) wait: Option<Duration>,
    /// The exit code if it is taken and nobody waits.
    pub(crate) taken_code: u8,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

/// A lock to be looked at.
pub(crate) struct Status {
    pub(crate) cluster: Cluster,
    pub(crate) name: OsString,
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
    /// How long to wait for a lock if the command line says nothing of it.
    pub(crate) wait: Option<Duration>,
    /// Whether locks are to carry a note about their holder, if the file says so.
    #[allow(dead_code, reason = "for the commands that write notes")]
    pub(crate) note: Option<bool>,
    node_limit: Option<Duration>,
    connect_limit: Option<Duration>,
}

impl Plan {
    pub(crate) fn new(args: Args) -> Result<Self, Failed> {
        match args.action {
            Action::Run(args) => Run::new(args).map(Self::Run),
            Action::Status(args) => Status::new(args).map(Self::Status),
            Action::Doctor(args) => Doctor::new(args).map(Self::Doctor),
            Action::Man(args) => Ok(Self::Man(args)),
            Action::Completions(args) => Ok(Self::Completions(args)),
        }
    }
}

impl Run {
    fn new(args: RunArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, args.ttl)?;
        let mut command = args.command.into_iter();
        let Some(program) = command.next() else {
            let message = "there is no command; write it after --, as in quorlock run NAME -- CMD";
            return Err(Failed::new(exit::MISUSE, message));
        };
        let wait = args.wait.or(cluster.wait);
        Ok(Self {
            cluster,
            name: args.name,
            wait: if args.nonblock { Some(Duration::ZERO) } else { wait },
            taken_code: args.conflict_exit_code,
            program,
            args: command.collect(),
        })
    }
}

impl Status {
    fn new(args: StatusArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, None)?;
        Ok(Self { cluster, name: args.name })
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
    fn new(args: ClusterArgs, ttl: impl Into<Option<Duration>>) -> Result<Self, Failed> {
        let config = Config::load(args.config.as_deref())?;
        let ttl = config::duration(ttl.into(), "QUORLOCK_TTL", config.ttl)?
            .unwrap_or(Settings::default().ttl);
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
        let most = Settings::default().max_ttl;
        if ttl > most {
            return Err(Failed::new(
                exit::MISUSE,
                format!(
                    "a TTL of {} is above the maximum of {}; use a shorter one, for it is extended \
                     as long as the command runs",
                    shown(ttl),
                    shown(most)
                ),
            ));
        }
        Ok(Self { urls, prefix, ttl, wait, note: config.note, node_limit, connect_limit })
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
        builder
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
    fn refusals_say_what_to_write() {
        let refusal = |args| plan(args).err().unwrap();
        let none = refusal("quorlock status --node , x");
        assert_eq!(none.code, 78);
        assert!(none.message.contains("--node") && none.message.contains("QUORLOCK_NODES"));
        let long = refusal("quorlock run --ttl 5m --node redis://a x -- cmd").message;
        assert!(long.contains("5m0s") && long.contains("30.0s"), "{long}");
    }
}
