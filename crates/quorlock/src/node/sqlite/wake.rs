//! How processes of one machine inform each other whose turn it is.
//!
//! A client that waits has a socket for datagrams in a directory beside the file, named after the
//! client. A process that passes a lock on connects to it *before* it writes the grant: that fails if
//! the client's process is gone, however it ended, and the next in the queue is tried. When the grant is
//! in the file, it sends the id of the waiter.
//!
//! A datagram is a hint and nothing more: its receiver looks into the file. So it does not matter
//! who sends them, or that the sockets can be written to by all who can see them.

use std::fmt::Display;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, stat, unlinkat,
};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::error::{MAKE_WRITABLE, Trouble, unfit};
use super::place::{Place, WAKE};
use crate::node::ClientId;

/// So many sockets of others are looked at when the file is opened and when a new socket is made, and
/// removed if no process is behind them any more.
const SWEPT: usize = 64;
/// They are chosen among so many.
const CHOICE: usize = 4_096;

/// The directory of the sockets.
#[derive(Debug)]
pub(super) struct SocketDir {
    path: PathBuf,
    /// The way to the sockets: a path to one may be longer than the name of a socket can be.
    directory: Option<OwnedFd>,
}

/// Where grant messages for this client arrive. It cannot be found any more once it is dropped.
#[derive(Debug)]
pub(super) struct GrantSocket {
    client: ClientId,
    socket: UnixDatagram,
    directory: OwnedFd,
    /// Dropped with the rest, which ends the task that waits for the socket.
    _listening: oneshot::Sender<()>,
}

/// A client that was there a moment ago.
#[derive(Debug)]
pub(super) struct Peer(UnixDatagram);

impl SocketDir {
    pub(super) fn beside(file: &Path) -> Self {
        let mut path = file.as_os_str().to_owned();
        path.push(WAKE);
        Self { path: path.into(), directory: None }
    }

    /// Connects to a client. Returns `None` if it is gone.
    ///
    /// # Errors
    /// If this process can connect to no client at all, for want of file descriptors or memory.
    pub(super) fn call(&mut self, client: ClientId) -> io::Result<Option<Peer>> {
        if let Some(directory) = &self.directory
            && let Ok(peer) = connect(directory, client)
        {
            return Ok(Some(peer));
        }
        // The directory may have been made only now, or made anew.
        self.directory = None;
        match open(&self.path).and_then(|new| connect(self.directory.insert(new), client)) {
            Ok(peer) => Ok(Some(peer)),
            Err(error) if is_of_receiver(error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a socket for this client; with it what ends when it is dropped.
    pub(super) fn listen(
        &mut self,
        client: ClientId,
        file: &Path,
    ) -> io::Result<(GrantSocket, oneshot::Receiver<()>)> {
        make(&self.path, file)?;
        let directory = open(&self.path)?;
        self.directory = Some(directory.try_clone()?);
        sweep(&directory, client);
        let socket = UnixDatagram::bind(path(&directory, &client.to_string()))?;
        socket.set_nonblocking(true)?;
        let (listening, ended) = oneshot::channel();
        let grant_socket = GrantSocket { client, socket, directory, _listening: listening };
        // All that may open the file may connect, whatever the umask of this process is.
        let name = client.to_string();
        fs::set_permissions(path(&grant_socket.directory, &name), Permissions::from_mode(0o666))?;
        Ok((grant_socket, ended))
    }
}

impl GrantSocket {
    /// Whether others can call this client.
    pub(super) fn can_be_called(&self, sockets: &mut SocketDir) -> bool {
        matches!(sockets.call(self.client), Ok(Some(_)))
    }

    /// The ids of waiters that a message has come for, until there is none left.
    pub(super) fn messages(&self) -> impl Iterator<Item = u64> {
        std::iter::from_fn(|| {
            let mut bytes = [0; 8];
            loop {
                match self.socket.recv(&mut bytes) {
                    Ok(_) => return Some(u64::from_le_bytes(bytes)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return None,
                }
            }
        })
    }

    /// The same socket, for a task that waits for something to arrive.
    pub(super) fn socket(&self) -> io::Result<UnixDatagram> {
        self.socket.try_clone()
    }
}

impl Drop for GrantSocket {
    fn drop(&mut self) {
        // The task that waits for it may have it a little longer: nothing is to be received by that.
        let _closed = self.socket.shutdown(Shutdown::Both);
        let _gone = unlinkat(&self.directory, self.client.to_string(), AtFlags::empty());
    }
}

impl Peer {
    /// Sends a message. Returns whether it is on its way, or is not needed: a client with so much unread that
    /// nothing more fits in will look at all of its tickets.
    pub(super) fn tell(&self, waiter: u64) -> bool {
        loop {
            match self.0.send(&waiter.to_le_bytes()) {
                Ok(_) => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

/// The right to open the file, which one process has at a time: a lock on the directory, which only
/// those can see who may write to the file.
#[derive(Debug)]
pub(super) struct Gate {
    path: PathBuf,
    directory: OwnedFd,
    was_there: bool,
}

impl Gate {
    /// Enters if nobody else is opening the file.
    pub(super) fn enter(place: &Place) -> Result<Self, Trouble> {
        let path = place.beside(WAKE);
        let problem = |what: &str, error: &dyn Display| {
            unfit(format!("{} {what}: {error}", path.display()), MAKE_WRITABLE)
        };
        let made = make(&path, &place.real).map_err(|error| problem("cannot be made", &error))?;
        place.check_beside(WAKE)?;
        let directory = match open(&path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                let problem = format!("{} is in the way of a directory", path.display());
                return Err(unfit(problem, "remove it, or name another file").into());
            }
            Err(error) => return Err(problem("cannot be opened", &error).into()),
        };
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Trouble::Busy),
            Err(error) => return Err(problem("cannot be locked", &error).into()),
        }
        // A process may have removed it, and another made it anew and locked that.
        let current = (fstat(&directory), stat(&path));
        match current {
            (Ok(ours), Ok(there)) if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) => {
                Ok(Self { path, directory, was_there: !made })
            }
            _ => Err(Trouble::Busy),
        }
    }

    /// Whether the directory was there before, so that the file has been one of locks.
    pub(super) fn was_there(&self) -> bool {
        self.was_there
    }

    /// The file cannot be used: it may be another program's, and nothing is left beside it.
    pub(super) fn leave_nothing(self) {
        if !self.was_there {
            let _others_are_in_it = fs::remove_dir(&self.path);
        }
    }

    /// Removes some sockets of processes that were killed.
    pub(super) fn sweep(&self, client: ClientId) {
        sweep(&self.directory, client);
    }
}

/// Whether it is about the client that was called, and not about the caller.
fn is_of_receiver(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    matches!(kind, ConnectionRefused | NotFound | PermissionDenied)
}

fn connect(directory: &OwnedFd, client: ClientId) -> io::Result<Peer> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(path(directory, &client.to_string()))?;
    Ok(Peer(socket))
}

/// Short, whatever the path of the directory is.
fn path(directory: &OwnedFd, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()).into()
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Makes the directory unless it is there, for those who may write to the file. Returns whether it did.
fn make(path: &Path, file: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        made => made?,
    }
    let file = fs::metadata(file)?;
    // As SQLite does with the files that it puts beside this one. Only root can do all of it.
    let _same = chown(path, Some(file.uid()), Some(file.gid()));
    let write = file.mode() & 0o222;
    fs::set_permissions(path, Permissions::from_mode((write << 1) | write | (write >> 1)))?;
    Ok(true)
}

/// Removes some sockets of processes that were killed. Others than the last time: by the id of
/// the client that sweeps, which is random.
fn sweep(directory: &OwnedFd, ClientId(start): ClientId) {
    let Ok(entries) = fs::read_dir(path(directory, "")) else { return };
    let names = entries.take(CHOICE).filter_map(|entry| Some(entry.ok()?.file_name()));
    let names: Vec<_> = names.collect();
    let Some(start) = start.checked_rem(names.len() as u64) else { return };
    let from_start = names.iter().cycle().skip(usize::try_from(start).unwrap_or(0));
    for name in from_start.take(SWEPT.min(names.len())) {
        let client = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
        let gone = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
        if client.is_some_and(|client| connect(directory, ClientId(client)).is_err_and(gone)) {
            let _gone = unlinkat(directory, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant_socket(sockets: &mut SocketDir, client: u64, file: &Path) -> GrantSocket {
        sockets.listen(ClientId(client), file).unwrap().0
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        // Longer than the path of a socket may be.
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        let file = deep.join("locks.db");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        (directory, file)
    }

    #[test]
    fn a_message_reaches_the_client_it_is_for_and_nobody_else() {
        let (_directory, file) = place();
        let (mut here, mut there) = (SocketDir::beside(&file), SocketDir::beside(&file));
        let grant_sockets = [grant_socket(&mut here, 1, &file), grant_socket(&mut here, 2, &file)];
        for waiter in [7, u64::MAX] {
            assert!(there.call(ClientId(2)).unwrap().unwrap().tell(waiter));
        }
        assert_eq!(grant_sockets[0].messages().count(), 0);
        assert_eq!(grant_sockets[1].messages().collect::<Vec<_>>(), [7, u64::MAX]);
        let mode = fs::metadata(&here.path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700, "for those who may write to the file, not {mode:o}");
    }

    #[test]
    fn a_client_that_is_gone_cannot_be_called() {
        let (_directory, file) = place();
        let mut sockets = SocketDir::beside(&file);
        assert!(sockets.call(ClientId(1)).unwrap().is_none(), "there is not even a directory");
        let first = grant_socket(&mut sockets, 1, &file);
        assert!(first.can_be_called(&mut sockets));
        let peer = sockets.call(ClientId(1)).unwrap().unwrap();
        drop(first);
        assert!(sockets.call(ClientId(1)).unwrap().is_none());
        assert!(!peer.tell(1), "it went between the call and the message");
    }

    #[test]
    fn a_full_socket_needs_no_more_messages() {
        let (_directory, file) = place();
        let mut sockets = SocketDir::beside(&file);
        let grant_socket = grant_socket(&mut sockets, 1, &file);
        let peer = sockets.call(ClientId(1)).unwrap().unwrap();
        for waiter in 0..10_000 {
            assert!(peer.tell(waiter));
        }
        assert!(grant_socket.messages().count() >= super::super::executor::MAY_BE_FULL);
    }

    #[test]
    fn sockets_of_the_dead_are_removed_and_those_of_the_living_are_not() {
        let (_directory, file) = place();
        let mut sockets = SocketDir::beside(&file);
        let living = grant_socket(&mut sockets, 1, &file);
        // Closed without being removed, as after a kill.
        let dead = path(&living.directory, &ClientId(2).to_string());
        drop(UnixDatagram::bind(dead).unwrap());
        fs::write(sockets.path.join("foreign"), "").unwrap();
        let _next = grant_socket(&mut sockets, 3, &file);
        let mut left: Vec<_> = fs::read_dir(&sockets.path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [ClientId(1).to_string(), ClientId(3).to_string(), "foreign".to_owned()]);
    }

    /// However many living ones there are.
    #[test]
    fn no_sockets_of_the_dead_pile_up_behind_those_of_the_living() {
        let (_directory, file) = place();
        let mut sockets = SocketDir::beside(&file);
        let _living: Vec<_> =
            (0..100).map(|id| grant_socket(&mut sockets, id << 56, &file)).collect();
        let directory = open(&sockets.path).unwrap();
        for id in 1_000..1_200 {
            drop(UnixDatagram::bind(path(&directory, &ClientId(id).to_string())).unwrap());
        }
        let count = || fs::read_dir(&sockets.path).unwrap().count();
        let mut random = 1_u64;
        for _ in 0..1_000 {
            let before = count();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sweep(&directory, ClientId(random >> 16));
            assert!(before - count() <= SWEPT, "one paid for all others");
        }
        assert_eq!(count(), 100);
    }

    #[test]
    fn one_process_at_a_time_enters_the_gate() {
        let (_directory, file) = place();
        let place = Place::prepare(&file).unwrap();
        let gate = Gate::enter(&place).unwrap();
        assert!(matches!(Gate::enter(&place), Err(Trouble::Busy)));
        drop(gate);
        Gate::enter(&place).unwrap();
        fs::remove_dir_all(place.beside(WAKE)).unwrap();
        fs::write(place.beside(WAKE), "in the way").unwrap();
        assert!(matches!(Gate::enter(&place), Err(Trouble::Failed(_))));
    }

    #[test]
    fn a_socket_that_was_removed_is_noticed() {
        let (_directory, file) = place();
        let mut sockets = SocketDir::beside(&file);
        let grant_socket = grant_socket(&mut sockets, 1, &file);
        fs::remove_dir_all(&sockets.path).unwrap();
        assert!(!grant_socket.can_be_called(&mut sockets));
        let mut other = SocketDir::beside(&file);
        let again = self::grant_socket(&mut other, 2, &file);
        assert!(sockets.call(ClientId(2)).unwrap().is_some(), "its directory is a new one");
        drop(again);
    }
}
