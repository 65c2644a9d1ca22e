//! No room: a database at its quota, and a member whose disk is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quorlock_testkit::{EtcdCluster, eventually_async as eventually, skipping, test};

use super::{LONG, etcdctl, on};

/// Until the alarm is raised.
fn fill(cluster: &EtcdCluster) {
    let large = "x".repeat(100_000);
    let is_full = |answer: &String| answer.contains("space exceeded");
    let mut puts =
        (0..100).map(|index| etcdctl(cluster, &["put", &format!("large/{index}"), &large]));
    puts.find(is_full).expect("it is full in the end");
}

/// A cluster that is at its quota writes nothing, and so it extends nothing. It goes on ending leases.
#[test]
async fn a_holder_learns_in_time_that_the_database_is_full() {
    let cluster = EtcdCluster::start_with(1, &["--quota-backend-bytes", "262144"]);
    let ttl = Duration::from_secs(3);
    let locker = on(&cluster.endpoints()).ttl(ttl).connect().await.expect("connected");
    let (kept, released) = (locker.lock("kept").await, locker.lock("released").await);
    let (kept, released) = (kept.expect("free"), released.expect("free"));
    fill(&cluster);

    let full = Instant::now();
    let error = released.release().await.expect_err("nothing can be written").to_string();
    assert!(error.contains("its database is full") && error.contains("alarm disarm"), "{error}");
    let error = kept.extend().await.expect_err("nothing can be written").to_string();
    assert!(error.contains("its database is full"), "{error}");
    kept.lost().await;
    // What was extended last before that.
    assert!(full.elapsed() < ttl, "it believed in it for {:?}", full.elapsed());
    assert!(!kept.is_held());

    // What is to be done, and then it goes on. The records have ended meanwhile.
    etcdctl(&cluster, &["del", "--prefix", "large/"]);
    let status = etcdctl(&cluster, &["endpoint", "status", "--write-out=fields"]);
    let revision = status.lines().find_map(|line| line.strip_prefix(r#""Revision" : "#));
    etcdctl(&cluster, &["compact", revision.expect("a revision")]);
    etcdctl(&cluster, &["defrag"]);
    etcdctl(&cluster, &["alarm", "disarm"]);
    for name in ["kept", "released"] {
        let guard = locker.lock(name).wait(LONG).await.expect("free in the end");
        guard.release().await.expect("released");
    }
}

/// A small disk, which is there until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Puts what is in a directory onto a disk of so many megabytes. Where that takes rights that we lack, the test is
    /// skipped.
    fn under(dir: &Path, megabytes: u32) -> Self {
        let aside = dir.with_extension("aside");
        fs::rename(dir, &aside).expect("a directory that nobody uses");
        fs::create_dir(dir).expect("its place is free");
        let size = format!("size={megabytes}m");
        let mut mount = Command::new(skipping::program("mount"));
        let mount = mount.args(["-t", "tmpfs", "-o", &size, "quorlock-test"]).arg(dir).output();
        let mount = mount.expect("mount");
        if !mount.status.success() {
            let said = String::from_utf8_lossy(&mount.stderr);
            skipping::lacks(
                "mount",
                format_args!("no disk can be made here, run it as root: {said}"),
            );
        }
        let disk = Self(dir.to_owned());
        let copied = Command::new("cp").arg("-a").arg(aside.join(".")).arg(dir).status();
        assert!(copied.expect("cp").success());
        disk
    }

    fn fill(&self) {
        let zeros = fs::File::open("/dev/zero").expect("there is always one");
        let mut rest = fs::File::create(self.0.join("rest")).expect("there is room for a name");
        let mut zeros = std::io::Read::take(zeros, 1 << 30);
        std::io::copy(&mut zeros, &mut rest).expect_err("it is full before");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The server is still there, and may have it open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// It dies of it, sooner or later. The others are enough.
#[test]
async fn a_member_whose_disk_is_full_does_not_matter() {
    let cluster = EtcdCluster::start(3);
    let leader = cluster.leader();
    cluster.kill(leader);
    // Its log of writes has 64 MB twice from the beginning.
    let disk = SmallDisk::under(&cluster.data_dir(leader), 170);
    cluster.restart(leader);
    let locker = on(&super::first(&cluster, leader)).connect().await.expect("connected");
    let guard = locker.lock("held").await.expect("free");

    disk.fill();
    // As long as an argument may be.
    let large = "x".repeat(120_000);
    let other = (leader + 1) % 3;
    let mut wrote = 0;
    eventually("the disk is too small", async || {
        for _ in 0..8 {
            super::etcdctl_at(&cluster, other, &["put", &format!("large/{wrote}"), &large]);
            wrote += 1;
        }
        let free = locker.lock("free").await.expect("the others are enough");
        free.release().await.expect("released");
        !cluster.is_running(leader)
    })
    .await;
    assert!(guard.is_held());
    guard.extend().await.expect("the others are enough");
    guard.release().await.expect("released");
}
