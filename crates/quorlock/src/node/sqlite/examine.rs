//! What a file is, and what that means for the locks in it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::statfs;

use super::SqliteNode;
use super::address::Address;
use super::connect::OpenFile;
use super::error::{Trouble, busy};
use super::forget::{PAUSE, forget_at};
use crate::Error;
use crate::admin::examine::{Examination, Unnotified, try_out};
use crate::node::{Failure, FailureKind, Node, NodeContext};
use crate::runtime::BoxFuture;

/// File systems of one machine, by the numbers that `statfs` gives them.
const FILE_SYSTEMS: [(i64, &str); 9] = [
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (OVERLAY, "overlay"),
    (FUSE, "FUSE"),
];
const OVERLAY: i64 = 0x794c_7630;
const FUSE: i64 = 0x6573_5546;

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let this user make and write files in the directory of the file: grant messages go by way of them",
);

/// Looks a file over. It is created if it is not there, as it would be by the first lock.
pub(in crate::node) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let (url, context, name) = (url.to_owned(), context.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "sqlite");
        examination.text("path", address.path.display().to_string());
        let mode = journal_mode(&address, &context).await;
        if let Err(failure) = look(&mut examination, &address, &context, mode) {
            examination.fail(&failure);
            return examination;
        }
        let opened =
            SqliteNode::new(index, &url, &context).map(|node| Arc::new(node) as Arc<dyn Node>);
        let tried = try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        // If it cannot be forgotten, it goes by itself.
        let _ = forget_at(&address, &context, tried.as_slice()).await;
        examination
    }))
}

fn broken(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Unfit, format!("the file cannot be looked at: {error}"))
}

/// Asked again while other processes open the file, which they do one at a time.
async fn journal_mode(address: &Address, context: &NodeContext) -> Result<String, Trouble> {
    let (start, limit) = (context.runtime.now(), context.settings.node_limit);
    loop {
        match OpenFile::open(address, context) {
            Ok(file) => {
                let mode =
                    file.connection.pragma_query_value(None, "journal_mode", |row| row.get(0));
                return mode.map_err(|error| broken(&error).into());
            }
            Err(trouble @ Trouble::Failed(_)) => return Err(trouble),
            Err(trouble) if context.runtime.now().since(start) >= limit => return Err(trouble),
            Err(Trouble::Busy | Trouble::Closed) => context.runtime.sleep(PAUSE).await,
        }
    }
}

fn look(
    examination: &mut Examination,
    address: &Address,
    context: &NodeContext,
    mode: Result<String, Trouble>,
) -> Result<(), Failure> {
    examination.text("server", format!("SQLite {}", rusqlite::version()));
    // The trial tells of a file that stays busy: here it is only asked what it is.
    match mode {
        Ok(mode) => examination.text("journal_mode", mode),
        Err(Trouble::Failed(failure)) => return Err(failure),
        // Another process is making it anew at this moment.
        Err(Trouble::Closed) => {}
        Err(Trouble::Busy) => {
            let why = busy(context.settings.node_limit).to_string();
            examination.warn("busy", why, "");
        }
    }
    let metadata = fs::metadata(&address.path).map_err(|error| broken(&error))?;
    examination.text("identity", format!("file {}:{}", metadata.dev(), metadata.ino()));
    examination.number("owner_uid", metadata.uid());
    let mode = metadata.permissions().mode() & 0o7777;
    examination.text("mode", format!("{mode:04o}"));
    diagnose_mode(examination, mode);
    let kind = statfs(&address.path).map_err(|error| broken(&error))?.f_type;
    #[allow(clippy::useless_conversion, reason = "it has 32 bits on some machines")]
    diagnose_file_system(examination, i64::from(kind), &address.path);
    Ok(())
}

fn diagnose_mode(examination: &mut Examination, mode: u32) {
    if mode & 0o002 != 0 {
        examination.warn(
            "permissions",
            format!("every user of this machine can take and free its locks (mode {mode:04o})"),
            "chmod o= the file, and give it a group if several users share locks",
        );
    } else {
        let who = if mode & 0o020 == 0 { "its owner" } else { "its owner and its group" };
        examination.ok("permissions", format!("{who} can take locks (mode {mode:04o})"));
    }
}

fn diagnose_file_system(examination: &mut Examination, number: i64, path: &Path) {
    // Where it has 32 bits, one of them is the sign.
    let number = number & 0xffff_ffff;
    let known = FILE_SYSTEMS.iter().find(|(other, _)| *other == number);
    let name = known.map_or_else(|| format!("0x{number:x}"), |(_, name)| (*name).to_owned());
    examination.text("file_system", name.as_str());
    match number {
        OVERLAY => examination.warn(
            "file-system",
            "it lies in the upper layer of a container, where no other container sees it",
            "mount a directory of the machine and name a file there, or use Redis nodes",
        ),
        FUSE => examination.warn(
            "file-system",
            "it lies on a FUSE file system; if other machines can open it too, it keeps no locks",
            "name a file on a disk of this machine",
        ),
        // What several machines share was refused when it was opened.
        _ => {
            let place = path.parent().unwrap_or(path).display();
            examination.ok("file-system", format!("{place} is on {name}, for this machine alone"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::examine::{Fact, Severity};

    #[test]
    fn the_layer_of_a_container_and_files_that_are_open_to_all_are_warned_about() {
        for (number, severity, name) in [
            (0xef53, Severity::Ok, "ext4"),
            (0x0102_1994, Severity::Ok, "tmpfs"),
            (0x1234, Severity::Ok, "0x1234"),
            (OVERLAY, Severity::Warn, "overlay"),
            (FUSE, Severity::Warn, "FUSE"),
        ] {
            let mut examination = Examination::new("x");
            diagnose_file_system(&mut examination, number, Path::new("/a/b"));
            assert_eq!(examination.findings[0].severity, severity, "{name}");
            assert_eq!(examination.fact("file_system"), Some(&Fact::Text(name.into())));
        }
        for (mode, severity, says) in [
            (0o600, Severity::Ok, "its owner can"),
            (0o660, Severity::Ok, "its group can"),
            (0o666, Severity::Warn, "every user"),
        ] {
            let mut examination = Examination::new("x");
            diagnose_mode(&mut examination, mode);
            assert_eq!(examination.findings[0].severity, severity);
            assert!(examination.findings[0].text.contains(says));
        }
    }
}
