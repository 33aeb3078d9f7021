//! The connection is encrypted as the address says.
//!
//! A minimal server, because the tests' PostgreSQL listens only on a local socket, without TLS. It
//! refuses every session, and says whether the connection was encrypted.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use advisory_tests::left_out;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::programs::{assert_lacks, cases, run, scratch};

/// Asks whether the server speaks TLS.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// An authority, and the certificate that it gave to `localhost`.
const CERTIFICATES: &str = "
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=authority -addext basicConstraints=critical,CA:true &&
openssl req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost &&
printf 'subjectAltName=DNS:localhost' >server.ext &&
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile server.ext
";

fn refusal(message: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C28000\0M{message}\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap();
    let mut bytes = vec![b'E'];
    bytes.extend(length.to_be_bytes());
    bytes.extend(fields.bytes());
    bytes
}

/// Without a configuration the server does not use TLS.
fn refuse(mut client: TcpStream, config: Option<Arc<ServerConfig>>) -> std::io::Result<()> {
    let mut asked = [0; 8];
    client.read_exact(&mut asked)?;
    if asked != SSL_REQUEST {
        return client.write_all(&refusal("in the clear"));
    }
    let Some(config) = config else {
        client.write_all(b"N")?;
        client.read_exact(&mut asked)?;
        return client.write_all(&refusal("in the clear"));
    };
    client.write_all(b"S")?;
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, client);
    stream.read_exact(&mut asked)?;
    stream.write_all(&refusal("it is encrypted"))?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn configuration(folder: &str) -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(format!("{folder}/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(format!("{folder}/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

fn serve(config: Option<Arc<ServerConfig>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client that does not trust the certificate ends the handshake.
            drop(refuse(client, config.clone()));
        }
    });
    port
}

/// The output of the command for an address.
fn refused(url: &str) -> String {
    let said = run(&["locks"], &[("DATABASE_URL", url)]).exits(2);
    assert_eq!(said.out, "");
    assert_lacks(&said.err, "secret");
    said.err
}

#[test]
fn no_form_of_an_address_weakens_its_sslmode() {
    let port = serve(None);
    let (clear, encrypted) = ("in the clear", "server does not support TLS");
    let system = "with `sslrootcert=system`: write `sslmode=verify-full`";
    let table = "\
clear | postgres://me:secret@localhost:PORT/d
clear | hostaddr=127.0.0.1 port=PORT user=me
encrypted | hostaddr=127.0.0.1 port=PORT user=me password=secret sslmode=verify-full
encrypted | postgres:///d?hostaddr=127.0.0.1&port=PORT&user=me&sslmode=verify-full
encrypted | host=/tmp hostaddr=127.0.0.1 port=PORT user=me sslmode=require
encrypted | postgres://me:secret?x@localhost:PORT/d?sslmode=require
encrypted | postgres://me@localhost:PORT/d?ssl%6Dode=require
encrypted | postgres://localhost:PORT/d?sslmode=require&user=me@shop
encrypted | host=localhost port=PORT user=me sslmode = require
encrypted | host=localhost port=PORT user=me password=a://secret sslmode=require
encrypted | host=localhost port=PORT user=me password=a\\  sslmode='require' password=b\\ 
encrypted | host=localhost port=PORT sslmode=r\\equire user=me
`sslrootcert=/my 'ca'.pem` | host=localhost sslmode=require sslrootcert='/my \\'ca\\'.pem'port=PORT
encrypted | postgres://me@localhost:PORT/d?sslrootcert=system
system | postgres://me@localhost:PORT/d?sslrootcert=system&sslmode=require";
    for [word, address] in cases(&table.replace("PORT", &port.to_string())) {
        let word = match word {
            "clear" => clear,
            "encrypted" => encrypted,
            "system" => system,
            word => word,
        };
        let err = refused(address);
        // If the system has no authorities at all, the answer says so.
        let has_none = word == encrypted && err.contains("no trusted authorities");
        assert!(err.contains(word) || has_none, "{address}: {err}");
    }
}

#[test]
fn sslmode_means_what_it_does_for_libpq() {
    let folder = scratch("certificates");
    fs::create_dir_all(&folder).unwrap();
    let made = Command::new("sh")
        .args(["-c", CERTIFICATES])
        .current_dir(&folder)
        .output()
        .unwrap();
    if !made.status.success() {
        return left_out(
            "tls",
            "there is no `openssl` on this system that makes certificates",
        );
    }
    let port = serve(Some(configuration(&folder)));
    let said = |host: &str, query: &str| {
        let url = format!("postgres://me:secret@{host}:{port}/shop?{query}");
        refused(&url)
    };
    let trusted = format!("sslrootcert={folder}/ca.pem").replace('/', "%2F");
    let table = "\
localhost |  | it is encrypted
localhost | sslmode=disable | in the clear
localhost | sslmode=prefer | it is encrypted
localhost | sslmode=require | it is encrypted
localhost | sslmode=verify-full | UnknownIssuer
localhost | sslmode=verify-ca | UnknownIssuer
localhost | sslmode=verify-full&TRUSTED | it is encrypted
127.0.0.1 | sslmode=verify-full&TRUSTED | not valid for name
127.0.0.1 | sslmode=verify-ca&TRUSTED | it is encrypted
127.0.0.1 | sslmode=require&TRUSTED | it is encrypted
127.0.0.1 | hostaddr=127.0.0.1&sslmode=verify-full&TRUSTED | not valid for name
localhost | sslrootcert=system | UnknownIssuer
localhost | sslmode=yes | write `disable`
localhost | sslmode=verify-ca&sslrootcert=none | `sslrootcert=none`";
    for [host, query, word] in cases(&table.replace("TRUSTED", &trusted)) {
        let err = said(host, query);
        // If the system has no authorities at all, the answer says so.
        let has_none = word == "UnknownIssuer" && err.contains("no trusted authorities");
        assert!(err.contains(word) || has_none, "{query} of {host}: {err}");
    }
}
