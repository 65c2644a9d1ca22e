//! A database server of the test's own.

use std::fs;
use std::io::{BufRead, BufReader, stdin};
use std::panic::catch_unwind;
use std::path::Path;
use std::process::{Command, Stdio};

use quorlock_testkit::{PostgresServer, eventually, test};

/// Whether the process is over. One that nobody waits for stays visible as a zombie.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    }
}

/// The processes that the server started.
fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.expect("the server is there");
    list.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

/// Whether the process made a piece of shared memory that is still there.
fn has_shared_memory(pid: u32) -> bool {
    let list = fs::read_to_string("/proc/sysvipc/shm").expect("a list");
    // The fifth column is who made it.
    list.lines().any(|line| line.split_whitespace().nth(4) == Some(pid.to_string().as_str()))
}

#[test]
fn it_runs_sql_and_goes_with_its_processes_and_its_directory() {
    let server = PostgresServer::start();
    assert_eq!(
        server.sql("CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, :b)", &[("b", 7)]),
        "CREATE TABLE\nINSERT 0 1\n"
    );
    assert_eq!(server.sql("SELECT a, b FROM t", &[]), "1|7\n");
    let refused = catch_unwind(|| server.sql("SELECT nothing FROM t; SELECT 1", &[])).unwrap_err();
    let text = refused.downcast_ref::<String>().unwrap();
    assert!(text.contains("column \"nothing\" does not exist"), "{text}");

    let directory = server.sql("SHOW data_directory", &[]);
    let directory = Path::new(directory.trim()).parent().unwrap();
    let mut processes = children(server.pid());
    processes.push(server.pid());
    assert!(directory.exists() && processes.len() > 1, "{processes:?}");
    let pid = server.pid();
    assert!(has_shared_memory(pid));
    drop(server);
    assert!(!has_shared_memory(pid));
    assert!(!directory.exists());
    assert!(processes.iter().all(|pid| is_gone(*pid)));
}

/// Not a test: what `a_killed_process_leaves_no_server` starts and kills.
#[test]
#[ignore = "waits to be killed"]
fn killed_with_a_server() {
    let server = PostgresServer::start();
    println!("\nserver {}", server.pid());
    // Ends when the parent of this process does.
    stdin().lines().for_each(drop);
}

#[test]
fn a_killed_process_leaves_no_server() {
    // A killed process cannot clean up, so its temporary files go where this one's do.
    let temporary = tempfile::tempdir().unwrap();
    // The server is another user's process, who has to get through here.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(temporary.path(), everybody).unwrap();
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
    let mut processes = children(server);
    processes.push(server);
    assert!(processes.iter().all(|pid| !is_gone(*pid)));

    process.kill().unwrap();
    process.wait().unwrap();
    eventually("the server is gone", || processes.iter().all(|pid| is_gone(*pid)));
}
