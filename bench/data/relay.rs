//! A node of the relays of `broadcast.py`, the plainest way of an object through many
//! nodes: it comes over one TCP connection, is written to a file, and goes on over
//! another one.
//!
//!     relay send BYTES NEXT
//!     relay receive BYTES FILE [NEXT]
//!
//! NEXT is the address of another that receives. One that can receive says "ready".

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

const PORT: u16 = 9000;
const PIECE_BYTES: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["send", bytes, next] => {
            io::copy(&mut io::repeat(7).take(bytes.parse()?), &mut connect(next)?)?;
        }
        ["receive", bytes, file, next @ ..] => {
            let listener = TcpListener::bind(("0.0.0.0", PORT))?;
            let next = next.first().map(|next| connect(next)).transpose()?;
            println!("ready");
            pass_on(listener.accept()?.0, bytes.parse()?, File::create(file)?, next)?;
        }
        _ => return Err("relay send BYTES NEXT, or relay receive BYTES FILE [NEXT]".into()),
    }
    Ok(())
}

/// It may not have been started yet.
fn connect(address: &str) -> io::Result<TcpStream> {
    for _ in 0..600 {
        if let Ok(stream) = TcpStream::connect((address, PORT)) {
            return Ok(stream);
        }
        sleep(Duration::from_millis(50));
    }
    TcpStream::connect((address, PORT))
}

fn pass_on(
    mut from: TcpStream,
    mut left: u64,
    mut file: File,
    mut next: Option<TcpStream>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while left > 0 {
        let count = from.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_all(&piece[..count])?;
        if let Some(next) = &mut next {
            next.write_all(&piece[..count])?;
        }
        left -= count as u64;
    }
    Ok(())
}
