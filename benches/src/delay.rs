//! A simulated network between client and server: a forwarder that delays the bytes of each
//! direction.
//!
//! It never waits for one packet before it takes the next, so it adds time and does not reduce
//! throughput. Its threads are the operating system's: their timer is finer than the runtime's
//! milliseconds, and a blocking side that occupies the runtime would delay the network too.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The server's address: the folder of its socket, and its port.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
}

/// A folder for a socket. Dropping this removes it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn create() -> io::Result<Self> {
        let name = format!("advisory-benches-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is a temporary folder, so leftovers do no harm.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Forwards from a socket in `folder` to the server's socket.
pub(crate) fn unix(folder: &Path, server: Origin, each_way: Duration) -> io::Result<()> {
    let name = format!(".s.PGSQL.{}", server.port);
    let listener = UnixListener::bind(folder.join(&name))?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Ok(server) = UnixStream::connect(server.folder.join(&name)) {
                both_ways(Socket::Unix(client), Socket::Unix(server), each_way);
            }
        }
    });
    Ok(())
}

/// Forwards from a port of this machine, which it returns, to the server's port.
pub(crate) fn tcp(server: u16, each_way: Duration) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                both_ways(Socket::Tcp(client), Socket::Tcp(server), each_way);
            }
        }
    });
    Ok(port)
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.try_clone().map(Self::Tcp)
            }
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tcp(stream) => stream.write_all(bytes),
        }
    }

    fn shutdown(&self, which: Shutdown) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.shutdown(which),
            Self::Tcp(stream) => stream.shutdown(which),
        }
    }
}

fn both_ways(client: Socket, server: Socket, each_way: Duration) {
    // If the connection cannot be cloned, it is closed, which both ends see.
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    forward(from_client, server, each_way);
    forward(from_server, client, each_way);
}

fn forward(mut from: Socket, mut to: Socket, delay: Duration) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let arrives = Instant::now() + delay;
            if sender.send((arrives, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (arrives, bytes) in receiver {
            #[expect(clippy::disallowed_methods, reason = "the time is the point")]
            thread::sleep(arrives.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // The other end has closed it already, or this closes it.
        drop(to.shutdown(Shutdown::Write));
    });
}
