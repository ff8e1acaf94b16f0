//! A dispatcher's identity: what it keeps in its directory so that the secrets
//! and the certificate stay the same over restarts.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::access::{StoredSecret, to_json};
use super::epochs::{EPOCH_BYTES, EPOCHS_MAX, Epochs, EpochsError};
use super::private_file::{self, FileError};
use super::secret::fill_randomly;
use super::{AccessError, AccessFile, DispatcherId, Fingerprint, Level, Role, Secret};

/// The version of `identity.json` that this release reads and writes.
const IDENTITY_FORMAT: u32 = 1;

const IDENTITY_FILE: &str = "identity.json";

/// Room for what [`Identity::encode`] appends, so that secrets are not left
/// behind where it was too small.
pub(super) const ENCODED_BYTES: usize = (4 << 10) + EPOCHS_MAX * EPOCH_BYTES;

/// The identity of a dispatcher: its number, the key that all secrets follow
/// from, and its certificate.
pub struct Identity {
    dispatcher: DispatcherId,
    master: Secret,
    epochs: Epochs,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// Why an identity could not be loaded or made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file of the identity could not be read or written, or others may
    /// read it.
    #[error(transparent)]
    File(FileError),
    /// The file is not JSON, or not an identity.
    #[error("{path} is damaged: {source}; {RENEW}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error, with its line and column.
        source: serde_json::Error,
    },
    /// The format of the file has another version.
    #[error(
        "{path} has format {format} and this falkon reads format {IDENTITY_FORMAT}: use the \
         release that wrote it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The version that it says.
        format: u64,
    },
    /// The certificate or private key in its file cannot be read.
    #[error("the certificate or private key in {path} is damaged; {RENEW}")]
    Pem {
        /// The file.
        path: PathBuf,
    },
    /// The system's random source failed.
    #[error("the system provided no random numbers: {0}")]
    Random(#[source] io::Error),
    /// There is no epoch for its instances.
    #[error(transparent)]
    Epochs(EpochsError),
    /// The certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[source] rcgen::Error),
}

/// The repair of a file that is damaged.
const RENEW: &str = "restore it from a copy, or move it away to get a new identity \
                     (all access files must then be handed out again)";

impl Identity {
    /// Loads the identity that is kept in `directory`, or makes one and keeps
    /// it there if there is none yet. The caller sees to it that only one
    /// dispatcher uses the directory at a time. The secrets of instances are
    /// new each time, until [`with_epochs`](Identity::with_epochs) says what
    /// was kept of them.
    ///
    /// # Errors
    /// [`IdentityError`]; a damaged file is never replaced.
    pub fn open(directory: &Path) -> Result<Identity, IdentityError> {
        let path = directory.join(IDENTITY_FILE);
        match private_file::read(&path) {
            Ok(bytes) => Identity::from_json(&bytes, &path),
            Err(FileError::Missing { .. }) => {
                let stored = Stored::generate()?;
                private_file::write(&path, &to_json(&stored)).map_err(IdentityError::File)?;
                stored.into_identity(&path)
            }
            Err(error) => Err(IdentityError::File(error)),
        }
    }

    /// A new identity that is kept nowhere.
    ///
    /// # Errors
    /// [`IdentityError`] if the system has no random numbers, or none can be made of them.
    pub fn ephemeral() -> Result<Identity, IdentityError> {
        Stored::generate()?.into_identity(Path::new("of this process"))
    }

    fn from_json(bytes: &[u8], path: &Path) -> Result<Identity, IdentityError> {
        let malformed = |source| IdentityError::Malformed { path: path.to_owned(), source };
        let Format { format } = serde_json::from_slice(bytes).map_err(malformed)?;
        if format != u64::from(IDENTITY_FORMAT) {
            return Err(IdentityError::Format { path: path.to_owned(), format });
        }
        serde_json::from_slice::<Stored>(bytes).map_err(malformed)?.into_identity(path)
    }

    /// The same identity, whose instances have these epochs.
    #[must_use]
    pub fn with_epochs(self, epochs: Epochs) -> Identity {
        Identity { epochs, ..self }
    }

    /// The dispatcher's number.
    #[must_use]
    pub fn dispatcher(&self) -> DispatcherId {
        self.dispatcher
    }

    /// The fingerprint of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The secret of a role, an instance or a user. It follows from the master key,
    /// that of an instance also from its epoch, and that of a user from the user's number, so
    /// nothing else has to be kept for it.
    #[must_use]
    pub fn secret(&self, role: Role) -> Secret {
        match role {
            Role::Instance(id) => {
                let mut material = [0; 24];
                material[..8].copy_from_slice(&id.to_le_bytes());
                material[8..].copy_from_slice(self.epochs.of(id));
                self.master.derive("falkon 2026 instance secret", &material)
            }
            Role::User(id) => self.master.derive("falkon 2026 user secret", &id.to_le_bytes()),
            fixed => self.master.derive("falkon 2026 role secret", fixed.to_string().as_bytes()),
        }
    }

    /// The secret that this dispatcher's executors prove themselves to each
    /// other with. It opens nothing at the dispatcher.
    #[must_use]
    pub fn peer_secret(&self) -> Secret {
        self.master.derive("falkon 2026 peer secret", &[])
    }

    /// An access file with the secrets of the given roles.
    #[must_use]
    pub fn access_file(&self, level: Level, addresses: &[String], roles: &[Role]) -> AccessFile {
        let secrets: BTreeMap<Role, Secret> =
            roles.iter().map(|role| (*role, self.secret(*role))).collect();
        AccessFile::new(self.dispatcher, addresses.to_vec(), level, self.fingerprint(), secrets)
    }

    /// Writes the dispatcher's access files into `directory`: `access.json` for
    /// the owner with the secrets of all fixed roles, and one with its own
    /// secret alone for each of client, executor and observer
    /// (`access-client.json` and so on). That of executors opens the `fallbacks` as well.
    ///
    /// # Errors
    /// [`AccessError::File`] if the system refuses to write one, and
    /// [`AccessError::NoSecret`] if a fallback is not for executors.
    pub fn write_access_files(
        &self,
        directory: &Path,
        level: Level,
        addresses: &[String],
        fallbacks: &[AccessFile],
    ) -> Result<(), AccessError> {
        // The owner's file comes last: a process that waits for it finds the
        // others there.
        for role in Role::FIXED.into_iter().rev() {
            let (name, roles) = match role {
                Role::Owner => ("access.json".to_owned(), Role::FIXED.to_vec()),
                role => (format!("access-{role}.json"), vec![role]),
            };
            let mut access = self.access_file(level, addresses, &roles);
            if role == Role::Executor {
                access = access.with_fallbacks(fallbacks)?;
            }
            access.write(&directory.join(name))?;
        }
        Ok(())
    }

    /// Appends the identity to `bytes`, for another process of this dispatcher.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let certificate: &[u8] = &self.certificate;
        let length = (certificate.len() as u64).to_le_bytes();
        bytes.extend_from_slice(&self.dispatcher.0);
        bytes.extend_from_slice(self.master.as_bytes());
        self.epochs.encode(bytes);
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(certificate);
        bytes.extend_from_slice(self.key.secret_der());
    }

    /// The inverse of [`Identity::encode`].
    pub(super) fn decode(bytes: &[u8]) -> Option<Identity> {
        let (dispatcher, bytes) = bytes.split_first_chunk()?;
        let (master, bytes) = bytes.split_first_chunk()?;
        let (epochs, bytes) = Epochs::decode(bytes)?;
        let (length, bytes) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (certificate, key) = bytes.split_at_checked(length)?;
        Some(Identity {
            dispatcher: DispatcherId(*dispatcher),
            master: Secret::from_bytes(*master),
            epochs,
            certificate: CertificateDer::from(certificate.to_vec()),
            key: PrivateKeyDer::try_from(key.to_vec()).ok()?,
        })
    }

    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("dispatcher", &self.dispatcher)
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Format {
    format: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    dispatcher: DispatcherId,
    master: StoredSecret,
    certificate: String,
    private_key: Zeroizing<String>,
}

impl Stored {
    fn generate() -> Result<Stored, IdentityError> {
        let mut dispatcher = [0; 16];
        fill_randomly(&mut dispatcher).map_err(IdentityError::Random)?;
        let master = Secret::random().map_err(IdentityError::Random)?;
        // Clients know the certificate by its fingerprint alone, so neither its
        // name nor its dates mean anything; a clock set back does no harm.
        let made = rcgen::generate_simple_self_signed(vec![super::tls::SERVER_NAME.to_owned()])
            .map_err(IdentityError::Certificate)?;
        Ok(Stored {
            format: IDENTITY_FORMAT,
            dispatcher: DispatcherId(dispatcher),
            master: StoredSecret(master),
            certificate: made.cert.pem(),
            private_key: Zeroizing::new(made.signing_key.serialize_pem()),
        })
    }

    fn into_identity(self, path: &Path) -> Result<Identity, IdentityError> {
        let damaged = |_| IdentityError::Pem { path: path.to_owned() };
        Ok(Identity {
            dispatcher: self.dispatcher,
            certificate: CertificateDer::from_pem_slice(self.certificate.as_bytes())
                .map_err(damaged)?,
            key: PrivateKeyDer::from_pem_slice(self.private_key.as_bytes()).map_err(damaged)?,
            master: self.master.0,
            epochs: Epochs::draw().map_err(IdentityError::Epochs)?,
        })
    }
}
