//! `quorlock man` and `quorlock completions`: what packagers and shells want, made from the
//! definition of the arguments.

use std::fs;
use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::aot;
use clap_mangen::Man;

use crate::args::{Args, CompletionsArgs, ManArgs, Shell};
use crate::exit::{self, Failed};

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs) -> Result<u8, Failed> {
    let mut command = Args::command();
    command.build();
    let Some(dir) = &args.dir else {
        return print(page(&Man::new(command)).as_bytes());
    };
    let mut all =
        command.get_subcommands().chain([&command]).map(|command| Man::new(command.clone()));
    let write = |man: Man| fs::write(dir.join(man.get_filename()), page(&man));
    let written = fs::create_dir_all(dir).and_then(|()| all.try_for_each(write));
    written.map(|()| 0).map_err(|error| {
        let dir = dir.display();
        let remedy = "name a directory that this user may write to";
        Failed::new(
            exit::MISUSE,
            format!("the pages cannot be written to {dir}: {error}; {remedy}"),
        )
    })
}

/// A page, with its examples and lists as they are: lines that start with spaces are not filled up.
fn page(man: &Man) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    // Long URLs leave nothing to stretch a line by.
    let mut page = ".ad l\n".to_owned();
    let mut as_it_is = false;
    for line in text.lines() {
        if line.starts_with("  ") != as_it_is {
            page.push_str(if as_it_is { ".fi\n" } else { ".nf\n" });
            as_it_is = !as_it_is;
        }
        page.push_str(line);
        page.push('\n');
    }
    page
}

/// Writes what completes commands in a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8, Failed> {
    let shell = match args.shell {
        Shell::Bash => aot::Shell::Bash,
        Shell::Zsh => aot::Shell::Zsh,
        Shell::Fish => aot::Shell::Fish,
    };
    let mut script = Vec::new();
    aot::generate(shell, &mut Args::command(), "quorlock", &mut script);
    print(&script)
}

fn print(text: &[u8]) -> Result<u8, Failed> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(0),
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => {
            Err(Failed::new(exit::OWN_FAILURE, format!("stdout cannot be written: {error}")))
        }
    }
}
