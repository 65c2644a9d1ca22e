//! Scripts with a mistake in them, to see whether the tests notice it: `cargo xtask mutants lua`.
//!
//! Only in test builds: the feature is off by default, and without debug assertions there is none of this.

use std::borrow::Cow;
use std::env;
use std::fs;
use std::sync::LazyLock;

/// The file of a script, and a file with what takes its place.
const ORIGINAL: &str = "QUORLOCK_MUTANT_OF";
const MUTANT: &str = "QUORLOCK_MUTANT";

static CHANGE: LazyLock<Option<(String, String)>> = LazyLock::new(|| {
    let read = |variable| {
        let file = env::var_os(variable)?;
        Some(fs::read_to_string(file).expect("the file that the variable names can be read"))
    };
    read(ORIGINAL).zip(read(MUTANT))
});

/// The source of a script, with the mistake if its file is part of it.
pub(super) fn mutated(source: &str) -> Cow<'_, str> {
    match &*CHANGE {
        Some((original, mutant)) => source.replace(original.as_str(), mutant).into(),
        None => source.into(),
    }
}
