//! Where a token comes from, as it is written.

use std::path::PathBuf;

const FILE_HELP: &str = "\
Read the token from the first line of a file; - for standard input [default: from QUORLOCK_TOKEN]";

const TOKEN_HELP: &str = "\
The token. Every user of the machine can see it there, so rather use a file, standard input or \
QUORLOCK_TOKEN";

/// What proves that the lock is held. Not `Debug`: the token is a secret.
#[derive(clap::Args)]
pub(crate) struct TokenArgs {
    #[arg(long, value_name = "FILE", help = FILE_HELP)]
    pub(crate) token_file: Option<PathBuf>,

    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file", help = TOKEN_HELP)]
    pub(crate) token: Option<String>,
}
