//! `quorlock man` and `quorlock completions`, as they are written.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

const MAN_EXAMPLES: &str = "\
Exit codes:
    0  written
   78  the directory cannot be written, or there are other arguments
  125  quorlock itself failed

Examples:
  quorlock man | man -l -                       # the page of quorlock itself
  quorlock man ~/.local/share/man/man1          # then: man quorlock-run
  sudo quorlock man /usr/local/share/man/man1   # for all users";

/// Write the manual pages.
#[derive(Parser)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The directory for all pages, which is made if need be; without it, the first page goes to
    /// stdout
    pub(crate) dir: Option<PathBuf>,
}

const COMPLETIONS_EXAMPLES: &str = "\
Exit codes:
    0  written
   78  a shell that is not known
  125  quorlock itself failed

Examples:
  source <(quorlock completions bash)           # for this shell only
  quorlock completions bash > /etc/bash_completion.d/quorlock   # for all users
  quorlock completions zsh > ~/.zfunc/_quorlock # in fpath, before compinit
  quorlock completions fish > ~/.config/fish/completions/quorlock.fish";

/// Write what makes a shell complete commands and options.
#[derive(Parser)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

/// The shells that are known.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
