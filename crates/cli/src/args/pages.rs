//! `quorlock man` and `quorlock completions`, as they are written.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

const MAN_EXAMPLES: &str = "\
Examples:
  quorlock man | man -l -                          # read the page of quorlock itself
  quorlock man ~/.local/share/man/man1             # then: man quorlock-run
  sudo quorlock man /usr/local/share/man/man1      # for all users";

/// Write the manual pages.
#[derive(Parser)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The directory for all pages, which is made if need be; without it, the first page goes to
    /// stdout
    pub(crate) dir: Option<PathBuf>,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  quorlock completions bash > ~/.local/share/bash-completion/completions/quorlock
  quorlock completions zsh > ~/.zfunc/_quorlock    # a directory in fpath, before compinit
  quorlock completions fish > ~/.config/fish/completions/quorlock.fish
  source <(quorlock completions bash)              # for this shell only";

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
