//! A simulated network between client and server: a forwarder that delays the bytes of each
//! direction.
//!
//! It never waits for one packet before it takes the next, so it adds time and does not reduce
//! throughput. Its threads are the operating system's: their timer is finer than the runtime's
//! milliseconds, and a blocking side that occupies the runtime would delay the network too.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Forwards from a port of this machine, which it returns, to the server's port.
pub(crate) fn tcp(server: u16, each_way: Duration) -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // If this fails, the connection is closed, which both ends see.
            drop(both_ways(client, server, each_way));
        }
    });
    Ok(port)
}

fn both_ways(client: TcpStream, server: u16, each_way: Duration) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward(client.try_clone()?, server.try_clone()?, each_way);
    forward(server, client, each_way);
    Ok(())
}

fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
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
