//! Files that somebody else has put where every user may write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use quorlock::Settings;
use quorlock::node::FailureKind;
use quorlock_testkit::{DEADLINE, eventually_async};

use super::{Place, open, patient, url};

const STRANGER: u32 = 12_345;

/// A directory like `/tmp`.
fn shared(place: &Place) -> PathBuf {
    let shared = place.directory.path().join("shared");
    fs::create_dir(&shared).expect("a directory");
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).expect("rights");
    shared
}

async fn refusal(file: &Path) -> String {
    let ready = open(&url(file), &Settings::default()).ready().await;
    let failure = ready.expect_err("a file that somebody has planted");
    assert_eq!(failure.kind(), FailureKind::Unfit, "{failure}");
    failure.to_string()
}

#[tokio::test]
async fn a_link_in_a_directory_of_all_is_not_followed() {
    for suffix in ["", "-wal", "-shm", "-journal", "-wake"] {
        let place = Place::new();
        let file = shared(&place).join("locks.db");
        let (target, link) =
            (place.directory.path().join("target"), format!("{}{suffix}", file.display()));
        if suffix == "-wake" {
            fs::create_dir(&target).unwrap();
        } else {
            fs::write(&target, "").unwrap();
        }
        symlink(&target, &link).unwrap();
        let why = refusal(&file).await;
        assert!(why.contains("symbolic link") && why.contains(&link), "{suffix:?}: {why}");
        assert!(why.contains("a directory of its own"), "{suffix:?}: {why}");
        if target.is_dir() {
            assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        } else {
            assert_eq!(fs::read(&target).unwrap(), b"", "{suffix:?}: it was followed");
        }
        fs::remove_file(&link).unwrap();
        patient(&file).connect().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_stranger_has_put_there_is_refused() {
    let tried = Place::new();
    fs::write(&tried.file, "").unwrap();
    if chown(&tried.file, Some(STRANGER), None).is_err() {
        eprintln!("skipped: this user may not give files to others");
        return;
    }
    for suffix in ["", "-wal", "-shm", "-journal", "-wake"] {
        let place = Place::new();
        let file = shared(&place).join("locks.db");
        let planted = format!("{}{suffix}", file.display());
        if suffix == "-wake" { fs::create_dir(&planted) } else { fs::write(&planted, "") }.unwrap();
        chown(&planted, Some(STRANGER), None).unwrap();
        let why = refusal(&file).await;
        assert!(why.contains(&format!("user {STRANGER}")) && why.contains(&planted), "{why}");
    }
    // On the way to it.
    let place = Place::new();
    let (way, target) = (shared(&place).join("way"), place.directory.path().join("target"));
    fs::create_dir(&target).unwrap();
    symlink(&target, &way).unwrap();
    lchown(&way, Some(STRANGER), None).unwrap();
    let why = refusal(&way.join("locks.db")).await;
    assert!(why.contains(&format!("user {STRANGER}")), "{why}");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
}

/// As in a symbolic link to a home, or `/var/run`.
#[tokio::test]
async fn links_in_directories_of_their_own_are_followed_and_lead_to_one_file() {
    let place = Place::new();
    let (way, link) = (place.directory.path().join("way"), place.directory.path().join("link.db"));
    symlink(place.directory.path(), &way).unwrap();
    let here = place.locker().await;
    symlink(&place.file, &link).unwrap();
    let guard = here.try_lock("a").await.unwrap();
    for file in [link, way.join("locks.db"), way.join("link.db")] {
        let there = patient(&file).connect().await.unwrap();
        there.try_lock("a").await.unwrap_err();
        // Who waits there is told, and need not wait until the record would have ended.
        let held = here.try_lock("b").await.unwrap();
        let waiter = tokio::spawn(there.lock("b").wait(DEADLINE).into_future());
        eventually_async("it waits", async || place.tickets() == 1).await;
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    guard.release().await.unwrap();
}

/// SQLite gives them the rights of the file.
#[tokio::test]
async fn a_wal_that_more_users_may_write_than_the_file_is_refused() {
    for suffix in ["-wal", "-shm"] {
        let place = Place::new();
        drop(place.locker().await);
        let lax = format!("{}{suffix}", place.file.display());
        fs::set_permissions(&lax, Permissions::from_mode(0o666)).unwrap();
        let why = refusal(&place.file).await;
        assert!(why.contains(&lax) && why.contains("chmod"), "{why}");
    }
}
