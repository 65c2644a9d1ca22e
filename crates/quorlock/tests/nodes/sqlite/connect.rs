//! Files that can keep locks, and files that cannot.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use quorlock::node::{self, FailureKind};
use quorlock::{Error, Locker, Settings};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::eventually;
use rusqlite::Connection;

use super::{LONG, Place, open, patient, url};

/// Why the file cannot be used, which a locker says in the same words.
async fn refusal(file: &Path) -> String {
    let ready = open(&url(file), &Settings::default()).ready().await;
    let failure = ready.expect_err("a file that keeps no locks");
    assert_eq!(failure.kind(), FailureKind::Unfit, "{failure}");
    let connected = patient(file).connect().await;
    let error = connected.expect_err("a file that keeps no locks");
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    assert!(error.to_string().contains(&failure.to_string()), "{error}");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    failure.to_string()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[tokio::test]
async fn a_new_file_and_its_directories_are_for_this_user_alone() {
    let place = Place::new();
    let file = place.directory.path().join("new/newer/locks.db");
    let locker = patient(&file).connect().await.unwrap();
    let _guard = locker.lock("a").await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(Path::new(&format!("{}{suffix}", file.display()))), 0o600, "{suffix:?}");
    }
    for directory in file.ancestors().skip(1).take(2) {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
}

#[tokio::test]
async fn many_may_create_a_file_at_once() {
    let place = Place::new();
    let mut settings = Settings::default();
    settings.connect_limit = LONG;
    for round in 0..20 {
        let url = url(&place.directory.path().join(format!("{round}.db")));
        let nodes: Vec<_> = (0..20).map(|_| open(&url, &settings)).collect();
        for node in nodes {
            node.ready().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_rights_of_an_existing_file_stay_as_they_are() {
    let place = Place::new();
    fs::write(&place.file, "").unwrap();
    fs::set_permissions(&place.file, Permissions::from_mode(0o660)).unwrap();
    place.locker().await;
    assert_eq!(mode(&place.file), 0o660);
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_left_alone() {
    let place = Place::new();
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(100);
    fs::write(&place.file, &text).unwrap();
    let why = refusal(&place.file).await;
    assert!(why.contains("not a database") && why.contains("name another file"), "{why}");
    assert_eq!(fs::read_to_string(&place.file).unwrap(), text);

    let foreign = place.directory.path().join("foreign.db");
    let sql = Connection::open(&foreign).unwrap();
    sql.execute_batch("CREATE TABLE lock(name)").unwrap();
    let why = refusal(&foreign).await;
    assert!(why.contains("another program"), "{why}");
    assert!(
        !place.directory.path().join("foreign.db-wake").exists(),
        "something is left beside it"
    );
    let mode: String = sql.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
}

#[tokio::test]
async fn a_file_of_another_version_is_refused() {
    for (version, remedy) in [(5, "newest program"), (3, "end the older programs")] {
        let place = Place::new();
        place.locker().await;
        place.sql().pragma_update(None, "user_version", version).unwrap();
        let why = refusal(&place.file).await;
        assert!(why.contains(&format!("its version is {version}")), "{why}");
        assert!(why.contains(remedy), "{why}");
    }
}

/// Whatever a crash of the machine has left of it.
#[tokio::test]
async fn a_file_of_another_boot_is_made_anew() {
    for damage in [None, Some("lock"), Some("ticket"), Some("boot")] {
        let place = Place::new();
        let before = place.locker().await;
        before.lock("a").await.unwrap().into_token().unwrap();
        drop(before);
        eventually("the file is closed", || !place.is_open_here());
        place.restart();
        if let Some(table) = damage {
            place.damage(table);
        }
        let locker = place.locker().await;
        locker.try_lock("a").await.unwrap().release().await.unwrap();
        let sql = place.sql();
        let boot: String = sql.query_row("SELECT id FROM boot", [], |row| row.get(0)).unwrap();
        assert_eq!(boot, fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim());
        let state: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(state, "ok", "{damage:?}");
    }
}

/// Not a test: one of those of `a_file_of_another_boot_is_made_anew_once`.
#[tokio::test]
#[ignore = "opens a file together with others"]
async fn opens_together() {
    let file = std::env::var("QUORLOCK_TEST_FILE").unwrap();
    let locker = patient(Path::new(&file)).connect().await.unwrap();
    let got = locker.try_lock("one of all").await.map(std::mem::forget);
    println!("\n{}", if got.is_ok() { "got it" } else { "did not" });
    // Ends with the process that started it. Nobody may have it twice, not even one after the other.
    std::io::stdin().lines().for_each(drop);
}

#[test]
fn a_file_of_another_boot_is_made_anew_once() {
    use std::io::{BufRead, BufReader};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = Place::new();
    runtime.block_on(async { drop(place.locker().await) });
    for _ in 0..5 {
        eventually("the file is closed", || !place.is_open_here());
        place.restart();
        let start = || super::processes::start("sqlite::connect::opens_together", &place);
        let mut processes: Vec<_> = (0..8).map(|_| start()).collect();
        let outputs = processes.iter_mut().map(|process| process.stdout.take().unwrap());
        let mut outputs: Vec<_> = outputs.map(|output| BufReader::new(output).lines()).collect();
        let mut count = 0;
        for output in &mut outputs {
            let mut lines = output.map_while(Result::ok);
            let said = lines.find(|line| line == "got it" || line == "did not");
            count += usize::from(said.expect("an answer") == "got it");
        }
        for mut process in processes {
            drop(process.stdin.take());
            process.wait().unwrap();
        }
        assert_eq!(count, 1);
    }
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let place = Place::new();
    let why = refusal(place.directory.path()).await;
    assert!(why.contains("is a directory") && why.contains("name a file in it"), "{why}");
    let why = refusal(Path::new("/dev/null")).await;
    assert!(why.contains("no regular file"), "{why}");
    fs::write(&place.file, "").unwrap();
    let why = refusal(&place.file.join("below.db")).await;
    assert!(why.contains("cannot be created") && why.contains("directory"), "{why}");
}

/// Not a test: what `a_file_that_cannot_be_written_is_refused` runs without root's power to write
/// to any file.
#[tokio::test]
#[ignore = "needs a process without capabilities"]
async fn refused_without_rights() {
    let file = std::env::var("QUORLOCK_TEST_FILE").unwrap();
    println!("\nrefused: {}", refusal(Path::new(&file)).await);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused() {
    let place = Place::new();
    place.locker().await;
    let refused = |file: &Path| {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--inh-caps=-all", "--bounding-set=-all"]);
            command.arg(std::env::current_exe().unwrap());
            command
        } else {
            Command::new(std::env::current_exe().unwrap())
        };
        command.args([
            "--ignored",
            "--exact",
            "sqlite::connect::refused_without_rights",
            "--nocapture",
        ]);
        let output = command.env("QUORLOCK_TEST_FILE", file).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let line = said.lines().find_map(|line| line.strip_prefix("refused: "));
        line.map(str::to_owned).ok_or(said)
    };
    fs::set_permissions(&place.file, Permissions::from_mode(0o400)).unwrap();
    let why = refused(&place.file).unwrap();
    assert!(why.contains("cannot be written") && why.contains("let this user write"), "{why}");

    fs::set_permissions(place.directory.path(), Permissions::from_mode(0o500)).unwrap();
    let why = refused(&place.directory.path().join("new.db")).unwrap();
    assert!(why.contains("cannot be created") && why.contains("to its directory"), "{why}");
}

#[tokio::test]
async fn a_file_that_could_not_be_opened_is_tried_again_with_the_next_call() {
    let place = Place::new();
    fs::create_dir(&place.file).unwrap();
    let node = open(&place.url(), &Settings::default());
    node.ready().await.unwrap_err();
    fs::remove_dir(&place.file).unwrap();
    assert!(owner("a").acquire(&node, LONG).is_done().await);
    node.ready().await.unwrap();
}

#[tokio::test]
async fn one_file_is_one_node() {
    let place = Place::new();
    let link = place.directory.path().join("link.db");
    std::os::unix::fs::symlink(&place.file, &link).unwrap();
    fs::write(&place.file, "").unwrap();
    let urls = [place.url(), url(&link), url(&place.directory.path().join("other.db"))];
    let error = Locker::builder().nodes(urls).connect().await.unwrap_err();
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
    assert!(error.to_string().contains("is the same file as"), "{error}");
}

#[tokio::test]
async fn odd_paths_are_files_like_any_other() {
    let place = Place::new();
    let directory = place.directory.path().display();
    for (odd, file) in [("%ff.db", &b"\xff.db"[..]), (":memory:", b":memory:"), ("a%20b", b"a b")] {
        let locker = Locker::builder().nodes([format!("sqlite:{directory}/{odd}")]);
        locker.connect().await.unwrap().lock("a").await.unwrap().release().await.unwrap();
        let file: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(file);
        assert!(place.directory.path().join(file).is_file(), "{odd}");
    }
    let error = Locker::builder().nodes(["sqlite:"]).connect().await.unwrap_err();
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
}

#[test]
fn the_default_is_a_file_of_this_user() {
    match node::default_url() {
        Ok(url) => assert!(url.ends_with("/quorlock/locks.db"), "{url}"),
        Err(error) => assert!(matches!(error, Error::Misuse { .. }), "{error}"),
    }
}
