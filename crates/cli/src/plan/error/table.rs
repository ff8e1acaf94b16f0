//! Why a table of values is refused.

use crate::plan::limits::VALUE_BYTES_MAX;

/// What is wrong with a line of a table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    /// More or fewer columns than the first line.
    #[error("it has {found} columns, and the first line has {columns}")]
    Uneven {
        /// How many it has.
        found: usize,
        /// How many the first line has.
        columns: usize,
    },
    /// Too many columns.
    #[error("it has {columns} columns, which are too many")]
    TooManyColumns {
        /// How many it has.
        columns: usize,
    },
    /// Two columns of one name.
    #[error("two columns are called `{name}`: give each a name of its own")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// A name that the first line does not have.
    #[error("`{name}` is no column of the first line: give all lines the same columns")]
    OtherName {
        /// The name.
        name: String,
    },
    /// A value that no argument can hold.
    #[error("the value of `{column}` has a NUL byte, which no argument can hold")]
    Nul {
        /// The column.
        column: String,
    },
    /// A value longer than an argument may be.
    #[error("the value of `{column}` is longer than an argument can be ({VALUE_BYTES_MAX} bytes)")]
    Long {
        /// The column.
        column: String,
    },
    /// A line that is too long, or a value in it.
    #[error(
        "a value in it is longer than an argument can be ({VALUE_BYTES_MAX} bytes), or it has too \
         many columns"
    )]
    LongLine,
    /// A quote without its end.
    #[error("a double quote is not closed")]
    OpenQuote,
    /// Something between a quote and the next column.
    #[error("text follows a closing double quote: write a double quote within a value twice")]
    AfterQuote,
    /// Not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// Not an object of JSON.
    #[error("{0} (each line is an object, whose names are the columns)")]
    Json(String),
}
