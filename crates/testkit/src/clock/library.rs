//! The library that gives a server its own clock, compiled when a test first needs it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::skipping;

const SOURCE: &str = include_str!("../../clock/server_clock.c");

/// The compiled library. It lies beside the test's program, so that `cargo clean` removes it.
pub(crate) fn path() -> &'static Path {
    // An error is kept too: each test that needs the library says what is wrong.
    static LIBRARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let cc = skipping::program("cc");
    let library = LIBRARY.get_or_init(|| {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let dir = program.parent().expect("a program lies in a folder");
        library_in(dir, &cc.to_string_lossy(), SOURCE)
    });
    library.as_deref().unwrap_or_else(|error| panic!("no clock of a server's own: {error}"))
}

/// The library in `dir`, compiled with `cc` if it is not there yet.
fn library_in(dir: &Path, cc: &str, source: &str) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let library = dir.join(format!("libserver_clock-{:016x}.so", hasher.finish()));
    if !library.exists() {
        // Several test programs may be here at once. Each compiles a file of its own; whichever
        // is renamed last stays, and none is ever seen half written.
        let unfinished = tempfile::Builder::new()
            .prefix("server_clock-")
            .suffix(".unfinished")
            .tempfile_in(dir)
            .map_err(|error| format!("{}: {error}", dir.display()))?
            .into_temp_path();
        compile(cc, source, &unfinished)?;
        unfinished.persist(&library).map_err(|error| format!("{}: {error}", library.display()))?;
    }
    Ok(library)
}

fn compile(cc: &str, source: &str, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => format!(
            "there is no C compiler `{cc}` on the PATH. `cargo xtask test` installs it, or: \
             apt-get install gcc libc6-dev"
        ),
        _ => format!("{cc}: {error}"),
    };
    let mut child = Command::new(cc)
        .args(["-std=gnu11", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o"])
        .arg(to)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // A compiler that ends before it has read all says why on its own.
    let _ = child.stdin.take().expect("it is piped").write_all(source.as_bytes());
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{cc} failed with {}:\n{said}", output.status));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::{fs, thread};

    use super::*;

    #[test]
    fn many_at_once_leave_one_library_that_is_never_seen_unfinished() {
        let (dir, done) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let library = library_in(dir.path(), "cc", SOURCE).unwrap();
        let whole = fs::read(&library).unwrap().len();
        fs::remove_file(&library).unwrap();
        let seen = thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mut seen = HashSet::new();
                while !done.load(SeqCst) {
                    seen.extend(fs::metadata(&library).map(|file| file.len()));
                }
                seen
            });
            let all = [(); 4].map(|()| scope.spawn(|| library_in(dir.path(), "cc", SOURCE)));
            let paths = all.map(|one| one.join().unwrap().unwrap());
            done.store(true, SeqCst);
            assert!(paths.iter().all(|path| path == &library), "{paths:?}");
            looker.join().unwrap()
        });
        assert!(seen.iter().all(|length| *length == whole as u64), "{seen:?}, not {whole}");
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(left, [library]);
    }

    #[test]
    fn what_is_compiled_is_not_compiled_again() {
        let dir = tempfile::tempdir().unwrap();
        let library = library_in(dir.path(), "cc", SOURCE).unwrap();
        assert_eq!(library_in(dir.path(), "no-such-compiler", SOURCE), Ok(library));
    }

    #[test]
    fn without_a_compiler_the_error_names_the_packages() {
        let dir = tempfile::tempdir().unwrap();
        let error = library_in(dir.path(), "no-such-compiler", SOURCE).unwrap_err();
        assert!(error.contains("no C compiler `no-such-compiler`"), "{error}");
        assert!(error.contains("apt-get install gcc libc6-dev"), "{error}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn a_compiler_that_fails_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let error = library_in(dir.path(), "cc", "not C").unwrap_err();
        assert!(error.contains("cc failed with exit status: 1"), "{error}");
        assert!(error.contains("<stdin>:1:"), "{error}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
}
