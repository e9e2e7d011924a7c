//! The certificate of a server, for TLS.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use warploom::{Error, Result};

/// Protocols that a client may choose during the handshake, the preferred one first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// A certificate and its private key, with which a server encrypts its connections.
#[derive(Clone)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
}

// Without the key.
warploom_core::base::debug_as!(Tls, |_this|);

impl Tls {
    /// Reads two PEM files: the certificate, followed by those of its issuers, and its private key.
    ///
    /// # Errors
    /// Io if a file cannot be read; a bad file if one has no certificate or no key, or if they do
    /// not belong together. Errors name the file.
    pub fn open(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Tls> {
        let read = |path: &Path| {
            let failed = |e| Error::io(format!("cannot read {}", path.display()), e);
            std::fs::read(path).map_err(failed)
        };
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        let texts = (read(certificate)?, read(key)?);
        let names = (certificate.display().to_string(), key.display().to_string());
        Tls::new((&texts.0, &names.0), (&texts.1, &names.1))
    }

    /// Reads the texts of two PEM files, as [`Tls::open`] does.
    ///
    /// # Errors
    /// A bad file, as [`Tls::open`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Tls> {
        Tls::new((certificate, "the certificate"), (key, "the key"))
    }

    /// Takes each text with its name.
    fn new((text, name): (&[u8], &str), (key_text, key_name): (&[u8], &str)) -> Result<Tls> {
        let mut chain = Vec::new();
        for (index, found) in CertificateDer::pem_slice_iter(text).enumerate() {
            let wrong = |e| Error::bad_file(format!("{name}: certificate {index}: {e}"));
            chain.push(found.map_err(wrong)?);
        }
        if chain.is_empty() {
            return Err(Error::bad_file(format!("{name}: has no certificate in PEM format")));
        }
        let key = PrivateKeyDer::from_pem_slice(key_text).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                let what = "has no private key in PEM format (PKCS #8, PKCS #1 or SEC1)";
                Error::bad_file(format!("{key_name}: {what}"))
            }
            error => Error::bad_file(format!("{key_name}: {error}")),
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| Error::unsupported(format!("TLS: {e}")))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|error| {
            let text = format!("{key_name}: is not the key of the first one in {name}: {error}");
            Error::bad_file(text)
        })?;
        config.alpn_protocols = PROTOCOLS.map(|name| name.as_bytes().to_vec()).into();
        Ok(Tls { config: Arc::new(config) })
    }
}
