//! Which file is read.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::misuse;
use crate::exit::Failed;

/// The variable that names a file.
pub(super) const VARIABLE: &str = "QUORLOCK_CONFIG";

const NAME: &str = "quorlock/config.toml";
const OF_THE_MACHINE: &str = "/etc/quorlock/config.toml";

/// The file to read, and whether it has to be there. `None` if there is none.
pub(super) fn find(
    named: Option<&Path>,
    variable: Option<OsString>,
) -> Result<Option<(PathBuf, bool)>, Failed> {
    let (path, by) = match (named, variable) {
        (Some(path), _) => (path.to_owned(), "--config"),
        (None, Some(path)) => (PathBuf::from(path), VARIABLE),
        (None, None) => {
            let places = places(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"));
            return Ok(first_there(places).map(|path| (path, false)));
        }
    };
    // A variable that is empty by mistake must not lead to the locks of another place.
    if path.as_os_str().is_empty() {
        return Err(misuse(format!("{by} is empty; name a file, or leave it away")));
    }
    Ok(Some((path, true)))
}

/// The user's own place before that of the machine.
fn places(config_home: Option<OsString>, home: Option<OsString>) -> Vec<PathBuf> {
    // An empty or a relative path is to be ignored, by the rules that made up these variables.
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
    let of_the_user = absolute(config_home).or_else(|| Some(absolute(home)?.join(".config")));
    let of_the_user = of_the_user.map(|place| place.join(NAME));
    of_the_user.into_iter().chain([PathBuf::from(OF_THE_MACHINE)]).collect()
}

/// One that is there but cannot be read counts: the error is better than the locks of another place.
fn first_there(places: Vec<PathBuf>) -> Option<PathBuf> {
    places.into_iter().find(|place| place.try_exists().unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(config_home: Option<&str>, home: Option<&str>) -> Vec<String> {
        let places = places(config_home.map(Into::into), home.map(Into::into));
        places.into_iter().map(|place| place.display().to_string()).collect()
    }

    #[test]
    fn the_places_follow_the_rules_of_their_variables() {
        let etc = "/etc/quorlock/config.toml";
        assert_eq!(shown(Some("/c"), Some("/h")), ["/c/quorlock/config.toml", etc]);
        for ignored in [None, Some(""), Some("c")] {
            assert_eq!(shown(ignored, Some("/h")), ["/h/.config/quorlock/config.toml", etc]);
            assert_eq!(shown(ignored, Some("h")), [etc]);
            assert_eq!(shown(ignored, None), [etc]);
        }
    }

    #[test]
    fn the_first_that_is_there_is_read_and_no_other() {
        let there = PathBuf::from("/dev/null");
        let away = PathBuf::from("/nonexistent/quorlock");
        assert_eq!(first_there(vec![away.clone(), there.clone()]), Some(there.clone()));
        assert_eq!(first_there(vec![there.clone(), "/dev/zero".into()]), Some(there));
        assert_eq!(first_there(vec![away]), None);
    }

    #[test]
    fn the_argument_wins_over_the_variable_and_neither_may_be_empty() {
        let find = |named: Option<&str>, variable: Option<&str>| {
            super::find(named.map(Path::new), variable.map(Into::into))
        };
        assert_eq!(find(Some("a"), Some("b")).unwrap(), Some(("a".into(), true)));
        assert_eq!(find(None, Some("b")).unwrap(), Some(("b".into(), true)));
        assert!(find(Some(""), Some("b")).unwrap_err().message.starts_with("--config is empty"));
        let empty = find(None, Some("")).unwrap_err().message;
        assert!(empty.starts_with("QUORLOCK_CONFIG is empty"), "{empty}");
    }
}
