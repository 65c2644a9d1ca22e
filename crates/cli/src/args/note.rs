//! What others may learn of a holder, as it is written.

const NO_NOTE_HELP: &str = "\
Do not tell others who holds the lock: host, user, process id and name of the command, for status, \
list and those who find it taken. QUORLOCK_NOTE=off does the same";

#[derive(clap::Args)]
pub(crate) struct NoteArgs {
    #[arg(long, help = NO_NOTE_HELP)]
    pub(crate) no_note: bool,
}
