//! Nothing is left behind, however a test ends.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, stdin};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use quorlock_testkit::{DEADLINE, Proxy, RedisServer, Reply, eventually, skipping, test};

/// Whether the process is over. One that nobody waits for stays visible as a zombie.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    }
}

fn directory(server: &RedisServer) -> PathBuf {
    let reply = server.command(&["CONFIG", "GET", "dir"]);
    if let Reply::Array(pair) = &reply
        && let [_, Reply::Bulk(Some(path))] = pair.as_slice()
    {
        OsStr::from_bytes(path).into()
    } else {
        panic!("{reply:?}")
    }
}

#[test]
fn a_dropped_server_is_gone_with_its_directory() {
    for pause in [false, true] {
        let server = RedisServer::start();
        let (pid, directory) = (server.pid(), directory(&server));
        assert!(!is_gone(pid));
        assert!(directory.join("redis.sock").exists());
        if pause {
            server.pause();
        }
        drop(server);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(!directory.exists());
    }
}

#[test]
fn a_test_that_panics_leaves_no_server() {
    let _ = skipping::program("redis-server");
    let (sender, receiver) = mpsc::channel();
    let panicked = catch_unwind(move || {
        let server = RedisServer::start();
        sender.send((server.pid(), directory(&server))).unwrap();
        panic!("a test that fails");
    });
    assert!(panicked.is_err());
    let (pid, directory) = receiver.recv().unwrap();
    assert!(is_gone(pid));
    assert!(!directory.exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let _ = skipping::program("redis-server");
    let starter = thread::spawn(|| {
        let this_thread = fs::read_link("/proc/thread-self").unwrap();
        (RedisServer::start(), Path::new("/proc").join(this_thread))
    });
    let (server, thread) = starter.join().unwrap();
    eventually("the thread is gone", || !thread.exists());
    assert!(server.is_running());
    assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()));
}

/// Not a test: what `a_killed_process_leaves_no_server` starts and kills.
#[test]
#[ignore = "waits to be killed"]
fn killed_with_a_server() {
    let server = RedisServer::start();
    println!("\nserver {}", server.pid());
    // Ends when the parent of this process does.
    stdin().lines().for_each(drop);
}

#[test]
fn a_killed_process_leaves_no_server() {
    let _ = skipping::program("redis-server");
    // A killed process cannot clean up, so its temporary files go where this one does.
    let temporary = tempfile::tempdir().unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "killed_with_a_server", "--nocapture"])
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let server: u32 = BufReader::new(process.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("server ")?.parse().ok())
        .expect("the process tells its server's pid");
    assert!(!is_gone(server));

    process.kill().unwrap();
    process.wait().unwrap();
    eventually("the server is gone", || is_gone(server));
}

#[test]
fn a_dropped_proxy_leaves_no_thread_and_no_connection() {
    let proxies = || {
        fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok())
            .filter(|name| name == "proxy\n")
            .count()
    };
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let mut client = TcpStream::connect(proxy.addr()).unwrap();
    eventually("the client is connected", || proxy.open() == 1);
    assert_eq!(proxies(), 1);

    proxy.hang(true);
    drop(proxy);
    eventually("the thread is gone", || proxies() == 0);
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}
