//! Tokens, between this process and a script.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::args::TokenArgs;
use crate::exit::{self, Failed};

/// Where a token is found if nothing else is said.
pub(crate) const VARIABLE: &str = "QUORLOCK_TOKEN";

/// No token is longer.
const MOST_BYTES: u64 = 4_096;

/// A token. Not `Debug`: it is a secret.
pub(crate) struct Secret(pub(crate) String);

/// The token that was given.
pub(crate) fn read(args: TokenArgs) -> Result<Secret, Failed> {
    let text = match (args.token, args.token_file) {
        (Some(token), _) => token,
        (None, Some(file)) if file == Path::new("-") => first_line(io::stdin())
            .map_err(|error| refused(format!("standard input cannot be read: {error}")))?,
        (None, Some(file)) => File::open(&file)
            .and_then(first_line)
            .map_err(|error| refused(format!("{} cannot be read: {error}", file.display())))?,
        (None, None) => env::var(VARIABLE).unwrap_or_default(),
    };
    if text.trim().is_empty() {
        return Err(refused(format!(
            "there is no token; set {VARIABLE} to what quorlock acquire has printed, or name its \
             file with --token-file (- for standard input)"
        )));
    }
    Ok(Secret(text.trim().to_owned()))
}

fn first_line(source: impl Read) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(source.take(MOST_BYTES)).read_line(&mut line)?;
    Ok(line)
}

fn refused(message: impl Into<String>) -> Failed {
    Failed::new(exit::MISUSE, message)
}

/// A file that a token can be written to.
pub(crate) struct Target(PathBuf);

impl Target {
    /// Looks before the lock is taken, so that nobody holds one in vain.
    pub(crate) fn new(path: PathBuf) -> Result<Self, Failed> {
        let no = |why: &str| {
            let remedy = "name another one, or none to have the token printed";
            Err(refused(format!("the token cannot go to {}: {why}; {remedy}", path.display())))
        };
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return no(&error.to_string()),
            Ok(there) if !there.is_file() => return no("it is no regular file"),
            Ok(there) if there.uid() != geteuid().as_raw() => {
                return no("it belongs to somebody else");
            }
            Ok(_) => match File::open(&path).and_then(first_line) {
                Ok(text) if text.is_empty() || is_token(&text) => {}
                _ => return no("it holds something that is no token"),
            },
        }
        if path.file_name().is_none() {
            return no("it is a directory");
        }
        if let Err(error) = access(directory(&path), Access::WRITE_OK | Access::EXEC_OK) {
            return no(&format!("its directory cannot be written: {}", io::Error::from(error)));
        }
        Ok(Self(path))
    }

    /// Puts the token there, for this user alone: all of it, or nothing.
    pub(crate) fn write(&self, token: &str) -> io::Result<()> {
        let mut name = self.0.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = directory(&self.0).join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let done = write_line(file, token).and_then(|()| fs::rename(&new, &self.0));
        if done.is_err() {
            // The error that is reported says more.
            let _ = fs::remove_file(&new);
        }
        done
    }
}

/// Writes the token to where it is read from once.
pub(crate) fn write_line(mut to: impl Write, token: &str) -> io::Result<()> {
    to.write_all(format!("{token}\n").as_bytes())?;
    to.flush()
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn is_token(text: &str) -> bool {
    let text = text.trim();
    let digits = |c: char| c.is_ascii_hexdigit() || c == ':';
    text.strip_prefix("ql:").is_some_and(|rest| rest.len() >= 40 && rest.chars().all(digits))
}
