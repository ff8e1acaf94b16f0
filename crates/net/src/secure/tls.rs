//! TLS 1.3, with the certificate known by its fingerprint alone.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio_rustls::{Connect, TlsAcceptor, TlsConnector, client, server};

use super::handshake::Binding;
use super::{Fingerprint, Identity};

/// The name in the certificate. It means nothing and is not checked.
pub(super) const SERVER_NAME: &str = "falkon";

/// The label of the key that ties the proofs to the TLS session.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-falkon-2026-proof";

/// How much is read from the socket at once, in bytes. TLS itself reads in
/// pieces of 4 KiB, each of which would be a system call.
const SOCKET_READ_BYTES: usize = 128 << 10;

/// How much encrypted data may wait for the socket, in bytes; it is also the
/// most that one system call writes.
const SOCKET_WRITE_BYTES: usize = 256 << 10;

pub(super) type ServerStream<S> = server::TlsStream<BufReader<S>>;
pub(super) type ClientStream<S> = client::TlsStream<BufReader<S>>;

/// A server's TLS, made once for all its connections.
pub(super) fn acceptor(identity: &Identity) -> Result<TlsAcceptor, Error> {
    acceptor_of(identity.certificate(), identity.key())
}

/// The same, of a certificate and its private key.
pub(super) fn acceptor_of(
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    // Every connection authenticates from the beginning.
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    acceptor: &TlsAcceptor,
    stream: S,
) -> std::io::Result<ServerStream<S>> {
    let stream = BufReader::with_capacity(SOCKET_READ_BYTES, stream);
    acceptor
        .accept_with(stream, |connection| connection.set_buffer_limit(Some(SOCKET_WRITE_BYTES)))
        .await
}

/// A handshake that has to be polled before it sends anything. It can be polled while the stream
/// gives nothing to read.
pub(super) fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    fingerprint: Fingerprint,
    stream: S,
) -> std::io::Result<Connect<BufReader<S>>> {
    let provider = provider();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(std::io::Error::other)?;
    let mut config = config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint, provider }))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::try_from(SERVER_NAME).map_err(std::io::Error::other)?;
    let stream = BufReader::with_capacity(SOCKET_READ_BYTES, stream);
    Ok(TlsConnector::from(Arc::new(config)).connect_with(name, stream, |connection| {
        connection.set_buffer_limit(Some(SOCKET_WRITE_BYTES));
    }))
}

pub(super) fn server_binding<S>(
    stream: &ServerStream<S>,
    fingerprint: Fingerprint,
) -> Result<Binding, Error> {
    let exported = stream.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None)?;
    Ok(Binding { fingerprint, exported })
}

pub(super) fn client_binding<S>(
    stream: &ClientStream<S>,
    fingerprint: Fingerprint,
) -> Result<Binding, Error> {
    let exported = stream.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None)?;
    Ok(Binding { fingerprint, exported })
}

/// True if `error` says that the server showed another certificate than the
/// pinned one.
pub(super) fn is_other_certificate(error: &Error) -> bool {
    *error == OTHER_CERTIFICATE
}

const OTHER_CERTIFICATE: Error =
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);

/// *ring*, with the suite first that this machine runs fastest. The server's
/// choice follows the client's order.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    let rank = |suite: CipherSuite| match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => u8::from(!has_aes()),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => u8::from(has_aes()),
        _ => 2,
    };
    provider.cipher_suites.sort_by_key(|suite| rank(suite.suite()));
    Arc::new(provider)
}

/// Whether the processor has instructions for AES and for GCM's hash.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Accepts one certificate, whatever its name, dates and issuer say, and checks
/// that the server holds its private key.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if Fingerprint::of(end_entity) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(OTHER_CERTIFICATE)
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
