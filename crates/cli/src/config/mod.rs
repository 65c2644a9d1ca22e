//! Settings from the environment and from a file, for what the command line leaves open.
//!
//! ```text
//!   command line ──▶ QUORLOCK_* ──▶ file ──▶ default        the first that says something decides
//! ```
//!
//! Each setting is looked up on its own. Files: `lookup` does that and remembers where it was found, `variables`
//! knows which variables there are, `place` knows which file, `file` reads it, `login`
//! puts users and passwords into the URLs of the nodes, `dialect` knows what
//! is to be promised of their locks.

mod dialect;
mod file;
mod login;
mod lookup;
mod place;
mod variables;

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::exit::{self, Failed};
use crate::stderr::warn;
pub(crate) use dialect::Promises;
pub(crate) use login::{Login, without_password};
pub(crate) use lookup::{Lookup, Origin, Origins};
use quorlock::Dialect;

/// What a file says. Not `Debug`: the URLs may hold passwords.
#[derive(Default)]
pub(crate) struct Config {
    /// Where it is.
    pub(crate) path: Option<PathBuf>,
    pub(crate) nodes: Vec<NodeEntry>,
    pub(crate) prefix: Option<String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) votes_within: Option<Duration>,
    pub(crate) node_limit: Option<Duration>,
    pub(crate) connect_limit: Option<Duration>,
    pub(crate) username: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) note: Option<bool>,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) max_ttl: Option<Duration>,
    pub(crate) clock_behind: Option<Duration>,
    pub(crate) clock_ahead: Option<Duration>,
    pub(crate) clients_apart: Option<Duration>,
}

/// A node that a file names.
#[derive(Clone, Default)]
pub(crate) struct NodeEntry {
    pub(crate) url: String,
    pub(crate) username: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
}

impl Config {
    /// Reads the file that was named, or the first that is there of those that need not be.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Failed> {
        variables::check(env::vars_os().map(|(name, _)| name))?;
        let variable = env::var_os(place::VARIABLE);
        let Some((path, must_be_there)) = place::find(named, variable)? else {
            return Ok(Self::default());
        };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_be_there => {
                return Ok(Self::default());
            }
            // Not passed over: the locks of another place are not those that were meant.
            Err(error) => {
                return Err(misuse(format!(
                    "the configuration file {} cannot be read: {error}; mend that, or name another \
                     with --config",
                    path.display()
                )));
            }
        };
        let mut config = file::parse(&path, &text)?;
        if config.nodes.iter().any(|node| login::has_password(&node.url)) {
            warn_if_open_to_all(&path);
        }
        config.path = Some(path);
        Ok(config)
    }
}

fn misuse(message: impl Into<String>) -> Failed {
    Failed::new(exit::MISUSE, message)
}

/// Passwords in a file that every user of the machine can read are no secret. This is a warning, not
/// a refusal: in a container every file may look like that, and there are no other users.
fn warn_if_open_to_all(path: &Path) {
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.is_file() && metadata.permissions().mode() & 0o006 != 0 {
        let path = path.display();
        warn(format_args!(
            "{path} holds a password and is open to every user of this machine; chmod o= {path}"
        ));
    }
}
