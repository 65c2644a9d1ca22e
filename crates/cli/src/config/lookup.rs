//! Looking settings up, and remembering where each was found.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use super::{Config, misuse};
use crate::duration;
use crate::exit::Failed;

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Argument(String),
    Variable(String),
    /// The path of the file.
    File(String),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(name) | Self::Variable(name) | Self::File(name) => f.write_str(name),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Where all settings come from, in the order in which they were looked up.
#[derive(Debug, Default)]
pub(crate) struct Origins(Vec<(&'static str, Origin)>);

impl Origins {
    pub(crate) fn of(&self, setting: &str) -> &Origin {
        let found = self.0.iter().find(|(name, _)| *name == setting);
        found.map_or(&Origin::Default, |(_, origin)| origin)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Origin)> {
        self.0.iter().map(|(setting, origin)| (*setting, origin))
    }
}

/// Looks settings up: on the command line, then in the environment, then in the file.
pub(crate) struct Lookup<'a> {
    pub(super) config: &'a Config,
    origins: Origins,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(config: &'a Config) -> Self {
        Self { config, origins: Origins::default() }
    }

    pub(crate) fn into_origins(self) -> Origins {
        self.origins
    }

    /// The variable of a setting.
    pub(super) fn variable_of(setting: &str) -> String {
        format!("QUORLOCK_{}", setting.to_uppercase())
    }

    /// That a setting was found elsewhere.
    pub(super) fn found(&mut self, setting: &'static str, origin: Origin) {
        self.origins.0.push((setting, origin));
    }

    /// Where the file is that was read.
    pub(super) fn file(&self) -> Origin {
        let path = self.config.path.as_ref();
        Origin::File(path.map_or_else(String::new, |path| path.display().to_string()))
    }

    /// Any setting: `read` makes something of the value of its variable.
    ///
    /// # Errors
    /// If the variable is what decides, and cannot be understood.
    pub(crate) fn setting<T>(
        &mut self,
        setting: &'static str,
        said: Option<T>,
        in_file: Option<T>,
        read: impl FnOnce(OsString) -> Result<T, String>,
    ) -> Result<Option<T>, Failed> {
        let variable = Self::variable_of(setting);
        let (value, origin) = if said.is_some() {
            // The nodes are named one by one.
            let option = if setting == "nodes" { "node" } else { setting };
            (said, Origin::Argument(format!("--{}", option.replace('_', "-"))))
        } else if let Some(value) = env::var_os(&variable) {
            let value = read(value).map_err(|error| misuse(format!("{variable}: {error}")))?;
            (Some(value), Origin::Variable(variable))
        } else if in_file.is_some() {
            (in_file, self.file())
        } else {
            (None, Origin::Default)
        };
        self.found(setting, origin);
        Ok(value)
    }

    /// A setting that is a duration.
    ///
    /// # Errors
    /// If the variable is what decides, and is none.
    pub(crate) fn duration(
        &mut self,
        setting: &'static str,
        said: Option<Duration>,
        in_file: Option<Duration>,
    ) -> Result<Option<Duration>, Failed> {
        self.setting(setting, said, in_file, |value| duration::parse(&value.to_string_lossy()))
    }

    /// A duration that only the file may have.
    pub(super) fn in_file(
        &mut self,
        setting: &'static str,
        in_file: Option<Duration>,
        default: Duration,
    ) -> Duration {
        let origin = if in_file.is_some() { self.file() } else { Origin::Default };
        self.found(setting, origin);
        in_file.unwrap_or(default)
    }
}
