//! Servers that come back without all that they had stored.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::{RedisServer, eventually};

/// Where a server keeps its AOF, in its directory: `*.base.*` and then `*.N.incr.aof`, to which it
/// appends.
const AOF_DIR: &str = "appendonlydir";

/// How much a server had written when the mark was taken, from [`RedisServer::aof_mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AofMark {
    /// The number of the file that was appended to.
    file: u64,
    length: u64,
}

impl RedisServer {
    /// Kills the server and starts it where it was, with nothing stored, `appendonly` or not.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn restart_empty(&self) {
        self.restart_after(|dir| {
            let removed = fs::remove_dir_all(dir.join(AOF_DIR));
            unless_missing(removed).expect("the server's AOF can be removed");
            let removed = fs::remove_file(dir.join("dump.rdb"));
            unless_missing(removed).expect("the server's dump can be removed");
        });
    }

    /// Marks the end of what the server has written to its AOF, which is all that it has answered
    /// so far.
    ///
    /// # Panics
    ///
    /// When the server does not answer, or keeps no AOF in the way of Redis 7.
    #[must_use]
    pub fn aof_mark(&self) -> AofMark {
        // While a sync to the disk takes long, a server may answer writes and hold them back.
        eventually("the server has written all to its AOF", || {
            let buffered = self.info("persistence", "aof_buffer_length");
            buffered.expect("the server keeps an AOF: start it with `appendonly`") == "0"
        });
        let (file, path) = last_aof(self.dir());
        let length = fs::metadata(path).expect("the AOF is there").len();
        AofMark { file, length }
    }

    /// Lets the server lose power with nothing on its disk since `mark`, and starts it again.
    ///
    /// It is killed, its AOF is cut back to the mark, and it loads what is left. With
    /// [`AppendFsync::EverySecond`](crate::AppendFsync) that is what happens to the last second.
    ///
    /// # Panics
    ///
    /// When the mark is not from this AOF: of another server, or from before it was rewritten. When
    /// the server does not come up.
    pub fn crash_losing_since(&self, mark: AofMark) {
        self.restart_after(|dir| {
            let (file, path) = last_aof(dir);
            let aof = File::options().write(true).open(path).expect("the AOF can be opened");
            let length = aof.metadata().expect("the AOF has a length").len();
            let fits = mark.file == file && mark.length <= length;
            assert!(fits, "{mark:?} is not in this AOF: {file}, {length} bytes");
            aof.set_len(mark.length).expect("the AOF can be cut");
        });
    }
}

/// The file that the server appends to, and its number.
fn last_aof(dir: &Path) -> (u64, PathBuf) {
    let numbered = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".incr.aof")?;
        let number = name.rsplit_once('.')?.1.parse().ok()?;
        Some((number, path))
    };
    fs::read_dir(dir.join(AOF_DIR))
        .and_then(|files| files.map(|file| Ok(file?.path())).collect::<io::Result<Vec<_>>>())
        .unwrap_or_else(|error| panic!("the server has no {AOF_DIR}: {error}"))
        .into_iter()
        .filter_map(numbered)
        .max()
        .expect("the server appends to a file")
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
