//! Which file a URL names, and which one is the default.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::Error;

/// What cannot stand for itself in a path within a URL.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// Absolute: the process may change its directory, and SQLite reads other things than files
    /// into names such as `:memory:` and `file:x`.
    pub(super) path: PathBuf,
    /// Which of the locker's nodes it is.
    pub(super) index: usize,
    pub(super) label: String,
}

impl Address {
    /// Reads the URL of the `index`-th node, `sqlite:PATH`.
    pub(super) fn parse(index: usize, url: &str) -> Result<Self, Error> {
        let refuse = |problem: &str, remedy: &str| {
            Err(Error::misuse(format!("the URL {url:?} of node {} {problem}", index + 1), remedy))
        };
        let text = url.strip_prefix("sqlite:").unwrap_or(url);
        if text.strip_prefix("//").is_some_and(|rest| !rest.starts_with('/')) {
            return refuse(
                "has a host",
                "write sqlite:/PATH for an absolute path, sqlite:PATH for a relative one",
            );
        }
        if text.contains('?') {
            return refuse(
                "has parameters, and a file takes none",
                "write %3F for a ? in the path",
            );
        }
        let bytes: Vec<u8> = percent_decode_str(text).collect();
        if bytes.is_empty() || bytes.ends_with(b"/") || bytes.contains(&0) {
            return refuse("names no file", "write sqlite:PATH, such as sqlite:/run/lock/app.db");
        }
        match std::path::absolute(OsStr::from_bytes(&bytes)) {
            Ok(path) => Ok(Self { label: format!("sqlite:{}", path.display()), path, index }),
            Err(error) => refuse(
                &format!(
                    "has a relative path, and the directory of this process is not known: {error}"
                ),
                "write an absolute path",
            ),
        }
    }
}

/// The URL of the file that processes of one user share unless they are configured otherwise:
/// `$XDG_STATE_HOME/quorlock/locks.db`, or `~/.local/state/quorlock/locks.db` without that
/// variable.
///
/// # Errors
/// [`Error::Misuse`] if neither `XDG_STATE_HOME` nor `HOME` holds an absolute path.
pub(super) fn default_url() -> Result<String, Error> {
    let path = default_path(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))?;
    let path = percent_encode(path.as_os_str().as_bytes(), ENCODED);
    Ok(format!("sqlite:{path}"))
}

fn default_path(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, Error> {
    // A relative path is to be ignored, by the rules that made up these variables.
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute(state).or_else(|| Some(absolute(home)?.join(".local/state")));
    let Some(state) = state else {
        return Err(Error::misuse(
            "there is no place for the locks of this user: neither XDG_STATE_HOME nor HOME holds \
             an absolute path",
            "set one of them, or name a node",
        ));
    };
    Ok(state.join("quorlock/locks.db"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(url: &str) -> PathBuf {
        Address::parse(0, url).unwrap().path
    }

    #[test]
    fn reads_absolute_relative_and_encoded_paths() {
        assert_eq!(path("sqlite:/var/lib/a.db"), PathBuf::from("/var/lib/a.db"));
        assert_eq!(path("sqlite:///var/lib/a.db"), PathBuf::from("/var/lib/a.db"));
        assert_eq!(path("sqlite:a/b.db"), env::current_dir().unwrap().join("a/b.db"));
        assert_eq!(path("sqlite:/a%20b%3F%25.db"), PathBuf::from("/a b?%.db"));
        assert_eq!(path("sqlite:/%ff").as_os_str().as_bytes(), b"/\xff");
        let address = Address::parse(1, "sqlite:/a%20b").unwrap();
        assert_eq!((address.label.as_str(), address.index), ("sqlite:/a b", 1));
    }

    #[test]
    fn names_that_mean_something_to_sqlite_are_files() {
        for name in [":memory:", "file:x"] {
            let expected = env::current_dir().unwrap().join(name);
            assert_eq!(path(&format!("sqlite:{name}")), expected);
        }
    }

    #[test]
    fn refusals_name_the_url_and_the_remedy() {
        for (url, says) in [
            ("sqlite:", "names no file"),
            ("sqlite:/tmp/", "names no file"),
            ("sqlite:///", "names no file"),
            ("sqlite:/a%00b", "names no file"),
            ("sqlite://a.db", "sqlite:/PATH for an absolute path"),
            ("sqlite:/a.db?mode=ro", "%3F"),
        ] {
            let error = Address::parse(2, url).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("node 3"), "{url}: {error}");
            assert!(error.contains(url), "{error}");
        }
    }

    #[test]
    fn the_default_is_in_the_state_directory_of_the_user() {
        let path = |state: &str, home: &str| default_path(Some(state.into()), Some(home.into()));
        assert_eq!(path("/s", "/h").unwrap(), PathBuf::from("/s/quorlock/locks.db"));
        for ignored in ["", "s"] {
            let path = path(ignored, "/h").unwrap();
            assert_eq!(path, PathBuf::from("/h/.local/state/quorlock/locks.db"));
        }
        for error in [path("", "").unwrap_err(), default_path(None, None).unwrap_err()] {
            assert!(error.to_string().contains("XDG_STATE_HOME nor HOME"), "{error}");
        }
    }

    #[test]
    fn an_encoded_path_is_read_back() {
        for path in [&b"/plain.db"[..], b"/a b%20?#:\xff.db"] {
            let url = format!("sqlite:{}", percent_encode(path, ENCODED));
            assert_eq!(Address::parse(0, &url).unwrap().path.as_os_str().as_bytes(), path);
        }
    }
}
