//! The two halves of a socket, whatever its kind.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{UnixStream, tcp, unix};

use super::address::Place;
use crate::node::dial::dial;

#[derive(Debug)]
pub(super) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// Written to without being `mut`, so that a caller can write to an idle connection by itself.
#[derive(Debug)]
pub(super) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

/// Opens a socket.
pub(super) async fn open(place: &Place) -> io::Result<(ReadHalf, WriteHalf)> {
    match place {
        Place::Tcp(host, port) => {
            let (read, write) = dial(host, *port).await?.into_split();
            Ok((ReadHalf::Tcp(read), WriteHalf::Tcp(write)))
        }
        Place::Unix(path) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            Ok((ReadHalf::Unix(read), WriteHalf::Unix(write)))
        }
    }
}

impl ReadHalf {
    /// Reads what is there; 0 bytes if the other side has closed.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let read = match self {
            Self::Tcp(half) => Pin::new(half).poll_read(cx, &mut buffer),
            Self::Unix(half) => Pin::new(half).poll_read(cx, &mut buffer),
        };
        read.map_ok(|()| buffer.filled().len())
    }
}

impl WriteHalf {
    /// Writes what fits without waiting.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_write(bytes),
            Self::Unix(half) => half.try_write(bytes),
        }
    }

    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => half.as_ref().poll_write_ready(cx),
            Self::Unix(half) => half.as_ref().poll_write_ready(cx),
        }
    }
}
