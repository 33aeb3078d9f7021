//! TLS: `sslmode` and `sslrootcert`, with their meaning in libpq.
//!
//! `prefer`, the default, and `require` encrypt without checking the certificate. `verify-ca`
//! requires a certificate of a trusted authority, and `verify-full` also checks that it contains
//! the host's name. The authorities are those of the system, or of the file in `sslrootcert`; with
//! such a file `require` means `verify-ca`. With `sslrootcert=system`, `verify-full` is the default
//! and the only mode: anybody can get a certificate of such an authority for another name.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::failure::{Failure, Result, bail};
use crate::text::one_line;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) mode: Option<String>,
    pub(crate) authorities: Option<String>,
}

/// The extent to which a certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Anybody,
    Authority,
    Host,
}

impl Tls {
    /// Takes a setting of an address; returns `false` if it is not about TLS.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        match name {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.authorities = Some(value.to_owned()),
            _ => return false,
        }
        true
    }

    /// The mode, and the connector that encrypts the connection.
    pub(crate) fn connector(&self) -> Result<(SslMode, MakeRustlsConnect)> {
        let is_system = self.authorities.as_deref() == Some("system");
        let has_file = self.authorities.is_some();
        let (mode, trust) = match self.mode.as_deref() {
            None if is_system => (SslMode::Require, Trust::Host),
            Some(mode @ ("disable" | "allow" | "prefer" | "require" | "verify-ca"))
                if is_system =>
            {
                bail!(
                    "`sslmode={mode}` cannot be used with `sslrootcert=system`: write `sslmode=verify-full`"
                )
            }
            Some("disable") => (SslMode::Disable, Trust::Anybody),
            // libpq's `allow` tries without TLS first; `prefer` works with the same servers.
            None | Some("allow" | "prefer") => (SslMode::Prefer, Trust::Anybody),
            Some("require") if !has_file => (SslMode::Require, Trust::Anybody),
            Some("require" | "verify-ca") => (SslMode::Require, Trust::Authority),
            Some("verify-full") => (SslMode::Require, Trust::Host),
            Some(other) => bail!(
                "invalid `sslmode={}`: write `disable`, `prefer`, `require`, `verify-ca` or `verify-full`",
                one_line(other)
            ),
        };
        let provider = Arc::new(ring::default_provider());
        let checked = match trust {
            Trust::Anybody => None,
            Trust::Authority | Trust::Host => {
                let roots = Arc::new(self.roots()?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
                Some(verifier.build().map_err(|error| failure(&error))?)
            }
        };
        let verifier = Verifier {
            checked,
            trust,
            algorithms: provider.signature_verification_algorithms,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failure(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok((mode, MakeRustlsConnect::new(config)))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match self.authorities.as_deref() {
            None | Some("system") => {
                // Ignores a system certificate that cannot be parsed; without any certificate there
                // is an error below.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(file) => {
                let shown = one_line(file);
                let unreadable = |why: &dyn std::fmt::Display| {
                    Failure::Input(format!("`sslrootcert={shown}`: {why}"))
                };
                let found = CertificateDer::pem_file_iter(file);
                for certificate in found.map_err(|error| unreadable(&error))? {
                    let certificate = certificate.map_err(|error| unreadable(&error))?;
                    roots.add(certificate).map_err(|error| unreadable(&error))?;
                }
            }
        }
        if roots.is_empty() {
            bail!("no trusted authorities: name a file of certificates, `sslrootcert=FILE`");
        }
        Ok(roots)
    }
}

fn failure(error: &dyn std::fmt::Display) -> Failure {
    Failure::Input(format!("TLS: {error}"))
}

#[derive(Debug)]
struct Verifier {
    checked: Option<Arc<WebPkiServerVerifier>>,
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(checked) = &self.checked else {
            return Ok(ServerCertVerified::assertion());
        };
        match checked.verify_server_cert(certificate, between, host, ocsp, now) {
            // The name is checked last, so the rest is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.trust == Trust::Authority => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
