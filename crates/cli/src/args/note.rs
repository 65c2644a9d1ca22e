//! What others may learn of a holder, as it is written.

const NO_NOTE_HELP: &str = "\
Do not tell those who ask for the status who holds the lock: host, user, process id and name of the \
command. QUORLOCK_NOTE=off does the same";

#[derive(clap::Args)]
pub(crate) struct NoteArgs {
    #[arg(long, help = NO_NOTE_HELP)]
    pub(crate) no_note: bool,
}
