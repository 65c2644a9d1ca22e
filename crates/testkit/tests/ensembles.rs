//! Clusters of real servers that agree among themselves.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write, stdin};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use quorlock_testkit::{
    DEADLINE, EtcdCluster, ZooKeeperEnsemble, eventually, fresh_prefix, skipping, test,
};

/// Whether the process is over. One that nobody waits for stays visible as a zombie.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    }
}

/// Whether the process is over and was waited for.
fn is_reaped(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Where a member keeps its files, of which its log is one.
fn directory(pid: u32) -> PathBuf {
    let log = fs::read_link(format!("/proc/{pid}/fd/1")).expect("the member is there");
    log.parent().expect("the log lies in a directory").to_owned()
}

/// What a member answers on a connection of its own, if it does.
fn try_ask(endpoint: &str, question: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(endpoint)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What a member answers on a connection of its own.
fn ask(endpoint: &str, question: &str) -> String {
    try_ask(endpoint, question).expect("the member answers")
}

/// Whether a member takes connections.
fn listens(endpoint: &String) -> bool {
    TcpStream::connect(endpoint).is_ok()
}

/// Runs a test of this program that waits to be killed, and kills it once it has told the processes
/// of its servers. Then these are gone, and so is what lay in directories.
fn killed_it_leaves_nothing(test: &str) {
    let temporary = tempfile::tempdir().expect("a directory");
    let mut process = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let members: Vec<u32> = BufReader::new(process.stdout.take().expect("piped"))
        .lines()
        .find_map(|line| Some(line.expect("text").strip_prefix("members ")?.to_owned()))
        .expect("the process tells its servers' pids")
        .split(' ')
        .map(|pid| pid.parse().expect("a number"))
        .collect();
    let directories: Vec<_> = members.iter().map(|pid| directory(*pid)).collect();
    assert!(directories.iter().all(|path| path.starts_with(temporary.path()) && path.exists()));

    process.kill().expect("it still runs");
    process.wait().expect("a child can be waited for");
    eventually("the servers are gone", || members.iter().all(|pid| is_gone(*pid)));
    eventually("their directories are gone", || directories.iter().all(|path| !path.exists()));
}

/// Tells the processes of some servers to `killed_it_leaves_nothing`, and waits for the end.
fn wait_to_be_killed_with(members: &[u32]) {
    let members: Vec<_> = members.iter().map(u32::to_string).collect();
    println!("\nmembers {}", members.join(" "));
    // Ends when whoever started this process does.
    stdin().lines().for_each(drop);
}

/// The tests that are the same for all kinds. `$lacking` ends a test where the servers are missing,
/// `$serves` is whether the member at an endpoint does what it is there for, `$leads` whether it says
/// that it leads.
macro_rules! tests_of {
    ($kind:ident, $scheme:literal, $lacking:expr, $serves:expr, $leads:expr) => {
        fn pids(ensemble: &$kind) -> Vec<u32> {
            (0..ensemble.endpoints().len()).map(|member| ensemble.pid(member)).collect()
        }

        #[test]
        fn one_member_leads_itself() {
            let ensemble = $kind::start(1);
            let endpoints = ensemble.endpoints();
            assert_eq!(endpoints.len(), 1);
            assert_eq!(ensemble.url(), format!("{}://{}", $scheme, endpoints[0]));
            assert!($serves(&endpoints[0]));
            assert_eq!(ensemble.leader(), 0);
        }

        #[test]
        fn a_killed_leader_is_followed_by_another_and_comes_back() {
            let ensemble = $kind::start(3);
            let endpoints = ensemble.endpoints();
            assert_eq!(ensemble.url(), format!("{}://{}", $scheme, endpoints.join(",")));
            assert!(endpoints.iter().all(listens));
            eventually("all serve", || endpoints.iter().all($serves));

            eventually("the leader says so", || $leads(&endpoints[ensemble.leader()]));
            let first = ensemble.leader();
            let pid = ensemble.pid(first);
            ensemble.kill(first);
            assert!(is_reaped(pid));
            assert_ne!(ensemble.leader(), first);

            ensemble.restart(first);
            assert_ne!(ensemble.pid(first), pid);
            assert_eq!(ensemble.endpoints(), endpoints);
            assert!(endpoints.iter().all(listens));
            eventually("all serve", || endpoints.iter().all($serves));
            eventually("the leader says so", || $leads(&endpoints[ensemble.leader()]));
        }

        #[test]
        fn a_stopped_leader_is_followed_by_another_and_goes_on_behind_it() {
            let ensemble = $kind::start(3);
            let first = ensemble.leader();
            ensemble.stop(first);
            let second = ensemble.leader();
            assert_ne!(second, first);
            ensemble.cont(first);
            eventually("it follows", || $serves(&ensemble.endpoints()[first]));
            assert!(!is_gone(ensemble.pid(first)));
        }

        #[test]
        fn all_are_killed_and_come_back() {
            let ensemble = $kind::start(3);
            (0..3).for_each(|member| ensemble.kill(member));
            // The first alone cannot serve, and is not waited for.
            (0..3).for_each(|member| ensemble.restart(member));
            assert!(ensemble.endpoints().iter().all(listens));
            eventually("all serve", || ensemble.endpoints().iter().all($serves));
            assert!(ensemble.leader() < 3);
        }

        #[test]
        fn dropped_members_are_gone_with_their_directories() {
            let ensemble = $kind::start(3);
            let pids = pids(&ensemble);
            let directories: Vec<_> = pids.iter().map(|pid| directory(*pid)).collect();
            assert!(directories.iter().all(|directory| directory.exists()));
            ensemble.stop(0);
            ensemble.kill(1);
            drop(ensemble);
            assert!(pids.iter().all(|pid| is_reaped(*pid)));
            assert!(directories.iter().all(|directory| !directory.exists()));
        }

        #[test]
        fn tests_of_a_process_share_one() {
            let _ = $lacking;
            let others = || $kind::shared(1).pid(0);
            let others = [thread::spawn(others), thread::spawn(others)];
            let shared = $kind::shared(1);
            assert!(others.into_iter().all(|other| other.join().unwrap() == shared.pid(0)));
            assert!($serves(&shared.endpoints()[0]));
        }

        /// Not a test: what `a_killed_process_leaves_nothing_of_a_shared_one` starts and kills.
        #[test]
        #[ignore = "waits to be killed"]
        fn killed_with_a_shared_one() {
            wait_to_be_killed_with(&pids($kind::shared(3)));
        }

        #[test]
        fn a_killed_process_leaves_nothing_of_a_shared_one() {
            let _ = $lacking;
            let module = module_path!().rsplit("::").next().unwrap();
            killed_it_leaves_nothing(&format!("{module}::killed_with_a_shared_one"));
        }
    };
}

mod etcd {
    use quorlock_testkit::test;

    use super::*;

    tests_of!(
        EtcdCluster,
        "etcd",
        skipping::program("etcd"),
        |endpoint: &String| {
            let answer = try_ask(endpoint, "GET /health HTTP/1.0\r\n\r\n");
            answer.is_ok_and(|answer| answer.contains(r#""health":"true""#))
        },
        |endpoint: &String| {
            let answer = try_ask(endpoint, "GET /metrics HTTP/1.0\r\n\r\n");
            answer.is_ok_and(|answer| answer.contains("\netcd_server_is_leader 1\n"))
        }
    );

    fn post(endpoint: &str, path: &str, json: &str) -> String {
        let length = json.len();
        ask(endpoint, &format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{json}"))
    }

    #[test]
    fn a_restarted_member_has_what_it_stored() {
        let cluster = EtcdCluster::start(1);
        let endpoint = &cluster.endpoints()[0];
        // `key` and `value`, as JSON has bytes.
        let put = post(endpoint, "/v3/kv/put", r#"{"key":"a2V5","value":"dmFsdWU="}"#);
        assert!(put.contains("200 OK"), "{put}");
        cluster.restart(0);
        let got = post(endpoint, "/v3/kv/range", r#"{"key":"a2V5"}"#);
        assert!(got.contains(r#""value":"dmFsdWU=""#), "{got}");
    }

    #[test]
    fn arguments_of_a_test_win() {
        let cluster = EtcdCluster::start_with(1, &["--max-request-bytes", "1000"]);
        let value = "A".repeat(2000);
        let json = format!(r#"{{"key":"a2V5","value":"{value}"}}"#);
        let put = post(&cluster.endpoints()[0], "/v3/kv/put", &json);
        assert!(put.contains("request is too large"), "{put}");
    }
}

mod zookeeper {
    use quorlock_testkit::test;

    use super::*;

    tests_of!(
        ZooKeeperEnsemble,
        "zookeeper",
        lacking(),
        |endpoint: &String| {
            try_ask(endpoint, "srvr").is_ok_and(|answer| answer.contains("\nMode: "))
        },
        |endpoint: &String| {
            // Of those that lead, and of no others, this tells who follows.
            try_ask(endpoint, "mntr").is_ok_and(|answer| answer.contains("\nzk_synced_followers\t"))
        }
    );

    fn lacking() {
        let _ = (skipping::program("java"), skipping::zookeeper());
    }

    /// The number of the leader's term and that of the last change in it.
    fn last_change(endpoint: &str) -> u64 {
        let state = ask(endpoint, "srvr");
        let number = state.lines().find_map(|line| line.strip_prefix("Zxid: 0x"));
        u64::from_str_radix(number.expect("the member serves"), 16).expect("a number")
    }

    #[test]
    fn a_restarted_member_goes_on_from_what_it_stored() {
        let ensemble = ZooKeeperEnsemble::start(3);
        let term = |member: usize| last_change(&ensemble.endpoints()[member]) >> 32;
        let before = term(ensemble.leader());
        (0..3).for_each(|member| ensemble.kill(member));
        (0..3).for_each(|member| ensemble.restart(member));
        assert!(term(ensemble.leader()) > before);
    }

    #[test]
    fn settings_of_a_test_win() {
        let ensemble = ZooKeeperEnsemble::start_with(1, &[("maxSessionTimeout", "4321")]);
        let settings = ask(&ensemble.endpoints()[0], "conf");
        assert!(settings.contains("maxSessionTimeout=4321\n"), "{settings}");
        assert!(settings.contains("minSessionTimeout=200\n"), "{settings}");
    }
}

#[test]
fn prefixes_differ() {
    let prefixes: Vec<_> = (0..20).map(|_| fresh_prefix()).collect();
    for prefix in &prefixes {
        // Itself, and no other.
        assert_eq!(
            prefixes.iter().filter(|other| other.starts_with(prefix)).count(),
            1,
            "{prefix}"
        );
    }
}
