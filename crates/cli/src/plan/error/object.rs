//! Why a declared data object is refused.

use falkon_data::store::UrlError;

/// Why a declared object is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ObjectError {
    /// The name would be outside the sandbox.
    #[error(
        "`{0}` is no name for a data object: give a relative path without `..`, which the task \
         finds in its own directory"
    )]
    Name(String),
    /// Two objects of a task have one name.
    #[error("two data objects are called `{0}`")]
    Doubled(String),
    /// Nothing stands after the `=`.
    #[error("the data object `{0}` has no source: write {0}=PATH, {0}=URL or {0}=cache:KEY")]
    NoSource(String),
    /// The source is not UTF-8.
    #[error("the source of the data object `{0}` is not UTF-8: rename the file")]
    NotUtf8(String),
    /// `cache:` without a key.
    #[error("the data object `{0}` needs a key after `cache:`")]
    NoKey(String),
    /// The task has a working directory.
    #[error("a task with data objects runs in a directory of its own: leave out --cwd (cwd)")]
    WithFolder,
    /// A builtin that reads nothing.
    #[error("@noop has no data objects, and other builtins write none: leave them out")]
    Builtin,
    /// One object would be a folder that another is in.
    #[error(
        "the data object `{file}` is a file, so that `{inner}` cannot be in it: choose another \
         name"
    )]
    Within {
        /// The file.
        file: String,
        /// The object that would be in it.
        inner: String,
    },
    /// The source or target is no place for objects.
    #[error("the data object `{name}`: {error}")]
    Place {
        /// The object's name.
        name: String,
        /// Why.
        #[source]
        error: UrlError,
    },
    /// A directory where only a file can be.
    #[error(
        "the data object `{name}`: `{place}` names a directory: name a file, or have the directory \
         packed (--unpack, or unpack in a task file)"
    )]
    Directory {
        /// The object's name.
        name: String,
        /// The directory.
        place: String,
    },
    /// The target can only be read.
    #[error(
        "the output `{name}` cannot be written to {target}: outputs go to a path, an s3: URL or \
         cache:KEY"
    )]
    ReadOnly {
        /// The object's name.
        name: String,
        /// Where it was to go.
        target: String,
    },
    /// The name of a member would be outside of the archive.
    #[error(
        "the output `{name}` cannot be called `{member}` in an archive: give a relative path \
         without `..` after the `!`"
    )]
    Member {
        /// The object's name.
        name: String,
        /// The member's.
        member: String,
    },
    /// A folder does not go to an archive.
    #[error(
        "the output `{name}` is a folder, whose files become members of an archive: give a target \
         that ends in .zip, such as cache:NAME.zip, not `{target}`"
    )]
    NoFolderTarget {
        /// The object's name.
        name: String,
        /// Where it was to go.
        target: String,
    },
    /// Members of archives in caches are not written one by one.
    #[error(
        "the output `{name}` cannot be written to `{target}`: a task that writes members of an \
         archive in a cache leaves them in a folder, which is one output: DIR/=cache:NAME.zip"
    )]
    CachedMember {
        /// The object's name.
        name: String,
        /// Where it was to go.
        target: String,
    },
    /// The archive cannot be written.
    #[error(
        "the output `{name}` cannot be written to the archive {archive}: archives that tasks \
         write are files, so give a path"
    )]
    ArchivePlace {
        /// The object's name.
        name: String,
        /// The archive.
        archive: String,
    },
    /// The archive of output streams cannot be written.
    #[error(
        "`{0}` is no archive for what tasks print: give the path of a file whose name ends in .zip"
    )]
    StreamsPlace(String),
    /// What is to be unpacked has no name.
    #[error("`{0}` is to be unpacked, and has no name: write NAME=ARCHIVE")]
    NoArchive(String),
    /// `--stage` without files.
    #[error("--stage brings the files of --each, but there is no --each")]
    NothingToStage,
}
