//! Certificates: what a node shows, whom it believes, and how both are renewed while it runs. The provider of cryptography
//! is named here and nowhere else.

use crate::config::{NodeConfig, TlsConfig};
use crate::wire::{self, Stream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::net::TcpStream;

/// A node's certificates, as they were last read.
pub(crate) struct Tls {
    settings: TlsConfig,
    /// Where other nodes find this one, for which its certificate must be.
    address: String,
    made: Made,
    /// When each file was changed, and its length, as it was last read.
    stamps: Vec<Stamp>,
}

type Stamp = Option<(SystemTime, u64)>;

/// What connections are made with; those that stand keep theirs.
struct Made {
    for_clients: Option<Arc<ServerConfig>>,
    for_nodes: Option<(Arc<ServerConfig>, Arc<ClientConfig>)>,
}

impl Tls {
    /// Reads the files of a node.
    ///
    /// # Errors
    /// Which file is wrong, and why.
    pub(crate) fn load(settings: &TlsConfig, node: &NodeConfig) -> Result<Self, String> {
        let settings = settings.of_node(&node.name);
        let address = node.peer.clone();
        // What changes while it is read is read again.
        let stamps = stamps(&settings);
        let made = make(&settings)?;
        Ok(Self { settings, address, made, stamps })
    }

    /// Reads the files again, if `always` or if one of them has changed; tells whether it did. Files that are wrong leave
    /// everything as it is.
    ///
    /// # Errors
    /// Which file is wrong, and why; this is told once.
    pub(crate) fn reload(&mut self, always: bool) -> Result<bool, String> {
        let stamps = stamps(&self.settings);
        if !always && stamps == self.stamps {
            return Ok(false);
        }
        self.stamps = stamps;
        let made = make(&self.settings)?;
        self.is_good()?;
        self.made = made;
        Ok(true)
    }

    /// Whether others will believe the certificate.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn is_good(&self) -> Result<(), String> {
        check_own(&self.settings, &self.address)
    }

    /// How to take up clients; `None` if they come without TLS.
    pub(crate) fn for_clients(&self) -> Option<Arc<ServerConfig>> {
        self.made.for_clients.clone()
    }

    /// How to take up nodes, and how to dial them; `None` if they meet without TLS.
    pub(crate) fn for_nodes(&self) -> Option<(Arc<ServerConfig>, Arc<ClientConfig>)> {
        self.made.for_nodes.clone()
    }
}

/// How a client makes sure of the nodes that it dials.
#[derive(Clone, Debug)]
pub struct Dialer(Arc<ClientConfig>);

/// Where the system keeps the authorities that it believes, by distribution.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

impl Dialer {
    /// Believes nodes whose certificate is signed by `ca`, or else by an authority of the system's, and shows the certificate
    /// and key of `identity`.
    ///
    /// # Errors
    /// Which file is wrong, and why.
    pub fn believing(ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self, String> {
        let roots = ca.map_or_else(system_roots, read_roots)?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Self::verifying(verifier.map_err(|error| format!("authorities: {error}"))?, identity)
    }

    /// Believes whoever answers, and shows the certificate and key of `identity`.
    ///
    /// # Errors
    /// Which file is wrong, and why.
    pub fn believing_anybody(identity: Option<(&Path, &Path)>) -> Result<Self, String> {
        Self::verifying(Arc::new(Anybody(ring::default_provider())), identity)
    }

    fn verifying(
        verifier: Arc<dyn ServerCertVerifier>,
        identity: Option<(&Path, &Path)>,
    ) -> Result<Self, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("tls: {error}"))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (chain, secret) = read_identity(certificate, key)?;
                let made = builder.with_client_auth_cert(chain, secret);
                made.map_err(|error| unfit(certificate, key, &error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Makes sure of whoever answers at that address, `HOST:PORT`, on a connection to it.
    ///
    /// # Errors
    /// Why it is not believed, or cannot be talked to.
    pub async fn dial(&self, tcp: TcpStream, address: &str) -> Result<Stream, String> {
        Stream::dial(tcp, self.0.clone(), name_of(address)?).await.map_err(|error| Self::explain(&error))
    }

    /// What went wrong on a connection, for whoever made it.
    pub fn explain(error: &std::io::Error) -> String {
        match wire::tls_error(error) {
            Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                "its certificate is signed by none that is believed here: name who signs them".to_owned()
            }
            Some(Error::InvalidMessage(_)) => "it does not speak TLS".to_owned(),
            Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
                "it asks for a certificate: show one".to_owned()
            }
            Some(other) => explain(other),
            None => error.to_string(),
        }
    }
}

/// Believes whoever answers; only that it has the key of the certificate that it shows is looked at.
#[derive(Debug)]
struct Anybody(CryptoProvider);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn files(settings: &TlsConfig) -> impl Iterator<Item = &PathBuf> {
    [&settings.certificate, &settings.key].into_iter().chain(&settings.ca).chain(&settings.client_ca)
}

fn stamps(settings: &TlsConfig) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    files(settings).map(stamp).collect()
}

fn make(settings: &TlsConfig) -> Result<Made, String> {
    let provider = Arc::new(ring::default_provider());
    let for_clients = if settings.clients {
        let config = serve(settings, &provider, settings.client_ca.as_deref())?;
        Some(Arc::new(config))
    } else {
        None
    };
    let for_nodes = match &settings.ca {
        Some(ca) if settings.nodes => {
            let config = serve(settings, &provider, Some(ca))?;
            Some((Arc::new(config), Arc::new(dial(settings, &provider, ca)?)))
        }
        _ => None,
    };
    Ok(Made { for_clients, for_nodes })
}

/// Whether others will believe the certificate of who lives at that address.
fn check_own(settings: &TlsConfig, address: &str) -> Result<(), String> {
    let provider = Arc::new(ring::default_provider());
    let unfit = |error: &Error| format!("{}: {}", settings.certificate.display(), explain(error));
    let chain = read_certificates(&settings.certificate)?;
    let (own, others) = chain.split_first().expect("there is one");
    // Whom clients believe is not known here. When it is good is looked at before who has signed it.
    let roots = if let Some(ca) = settings.ca.as_ref().filter(|_| settings.nodes) {
        read_roots(ca)?
    } else {
        let mut roots = RootCertStore::empty();
        roots.add(own.clone()).map_err(|error| unfit(&error))?;
        roots
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = verifier.map_err(|error| format!("{}: {error}", settings.certificate.display()))?;
    match verifier.verify_server_cert(own, others, &name_of(address)?, &[], UnixTime::now()) {
        Err(
            error @ Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ),
        ) => Err(unfit(&error)),
        Err(error) if settings.nodes => Err(unfit(&error)),
        _ => Ok(()),
    }
}

/// How to be dialled, by those that show a certificate of `ca` if there is one.
fn serve(
    settings: &TlsConfig,
    provider: &Arc<CryptoProvider>,
    ca: Option<&Path>,
) -> Result<ServerConfig, String> {
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("tls: {error}"))?;
    let builder = match ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(read_roots(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build();
            builder
                .with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
        }
    };
    let (chain, key) = read_identity(&settings.certificate, &settings.key)?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| unfit(&settings.certificate, &settings.key, &error))?;
    if ca.is_some() {
        // What goes on where it was left shows no certificate, which may have run out since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// How to dial: showing the certificate, and believing those of `ca`.
fn dial(settings: &TlsConfig, provider: &Arc<CryptoProvider>, ca: &Path) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("tls: {error}"))?;
    let (chain, key) = read_identity(&settings.certificate, &settings.key)?;
    let mut config = builder
        .with_root_certificates(read_roots(ca)?)
        .with_client_auth_cert(chain, key)
        .map_err(|error| unfit(&settings.certificate, &settings.key, &error))?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn unfit(certificate: &Path, key: &Path, error: &Error) -> String {
    let (certificate, key) = (certificate.display(), key.display());
    format!("{certificate} and {key} do not belong together or are not usable: {error}")
}

fn read_identity(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = read_certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("{} is no private key in PEM: {error}", key.display()))?;
    Ok((chain, key))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates =
        read.map_err(|error| format!("{} holds no certificates in PEM: {error}", path.display()))?;
    if certificates.is_empty() {
        return Err(format!("{} holds no certificates in PEM", path.display()));
    }
    Ok(certificates)
}

fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}

/// The authorities that the system believes, but for those that cannot be read.
fn system_roots() -> Result<RootCertStore, String> {
    let path = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists()).ok_or(
        "this system keeps no authorities where they are looked for: name who has signed the certificates",
    )?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(read_certificates(path)?);
    Ok(roots)
}

/// What the certificate of whoever lives at an address of the configuration must be for.
pub(crate) fn name_of(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned())
        .map_err(|error| format!("'{host}' cannot stand in a certificate: {error}"))
}

/// Whether the certificate of a node that has dialled is for the address at which it lives.
///
/// # Errors
/// Why not.
pub(crate) fn check_name(certificate: &CertificateDer<'_>, address: &str) -> Result<(), String> {
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| explain(&error))?;
    verify_server_name(&parsed, &name_of(address)?).map_err(|error| explain(&error))
}

/// What went wrong, for the log, with the way out.
pub(crate) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired: renew it".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet: look at the clocks".to_owned()
            }
            CertificateError::UnknownIssuer => {
                "its certificate is signed by none that this node believes: give it one of the ca in [tls]"
                    .to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not for the host in its address ({why}): give it one that is")
            }
            other => format!("its certificate is not good: {other}"),
        },
        Error::NoCertificatesPresented => {
            "it shows no certificate, and this node asks for one: give it one of the ca in [tls]".to_owned()
        }
        Error::AlertReceived(alert) => format!("it has ended the TLS handshake with the alert {alert:?}"),
        Error::InvalidMessage(_) => NO_TLS.to_owned(),
        other => format!("TLS: {other}"),
    }
}

/// Of a node whose first bytes are not those of TLS.
pub(crate) const NO_TLS: &str = "it does not speak TLS, and this node does: give all nodes the same [tls]";
