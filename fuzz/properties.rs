//! What must hold for any bytes whatever. `make fuzz` looks for bytes that break it, guided by coverage; `make
//! test` tries the corpus and 100,000 seeded mutations of it (crates/meridian/tests/mutations.rs).

use meridian_check::history::{self, Format};
use meridian_node::frame::{self, Kind as Frame};
use meridian_node::resp::parse::{Parser, ProtocolError};
use meridian_node::resp::table::{self, Kind};
use meridian_node::token::{self, Tokens};
use meridian_protocol::machine::Record;
use meridian_protocol::wire::{self, Wire};
use meridian_protocol::{causal, cc_lo, epaxos, gryff, multipaxos, spanner};

/// The longest string that is accepted, small so that the limit is met.
const BULK_MAX: usize = 4096;

/// Bytes from a client: however they are cut, the same commands come out, and making sense of them never panics.
pub(crate) fn resp(data: &[u8]) {
    let whole = commands(data, data.len().max(1));
    // The first byte chooses the size of the pieces, so that a mutation of it tries other cuts.
    let piece = 1 + usize::from(data.first().copied().unwrap_or(0)) % 7;
    let pieces = commands(data, piece);
    assert_eq!(whole, pieces, "the cut changes the meaning");

    for words in &whole.0 {
        let mut again = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            again.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            again.extend_from_slice(word);
            again.extend_from_slice(b"\r\n");
        }
        let (parsed, error) = commands(&again, again.len());
        // A line of words may be longer than a string may be.
        if words.iter().all(|word| word.len() <= BULK_MAX) {
            assert_eq!(
                (parsed.as_slice(), error),
                (std::slice::from_ref(words), None),
                "written out, it is another"
            );
        }
    }
}

/// All commands in `data`, which arrives in pieces of so many bytes, and the error that ended it.
fn commands(data: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut found = Vec::new();
    let mut parser = Parser::default();
    let mut buffer = Vec::new();
    for part in data.chunks(piece) {
        buffer.extend_from_slice(part);
        loop {
            match parser.parse(&buffer, BULK_MAX) {
                Ok(false) => break,
                Err(error) => return (found, Some(error)),
                Ok(true) => {}
            }
            let args = parser.args(&buffer);
            if !args.is_empty() {
                if let Some(entry) = table::find(&args[0])
                    .and_then(|entry| entry.resolve(args))
                    .filter(|e| e.accepts(args.len()))
                {
                    assert!(
                        entry.keys.indexes(args.len()).all(|index| index < args.len()),
                        "a key outside the command"
                    );
                    if let Kind::Key(typer) = entry.kind {
                        // Refused or understood; either way without a panic.
                        let _ = typer(args, 1_700_000_000_000);
                    }
                }
                found.push(args.iter().map(<[u8]>::to_vec).collect());
            }
            let consumed = parser.consumed();
            assert!((1..=buffer.len()).contains(&consumed), "a command of {consumed} bytes");
            buffer.drain(..consumed);
            parser.next();
        }
    }
    (found, None)
}

/// Bytes from another node or from a disk: what is understood is written out as it was understood.
pub(crate) fn wire(data: &[u8]) {
    message::<gryff::Message>(data);
    message::<epaxos::Message>(data);
    message::<multipaxos::Message>(data);
    message::<spanner::Message>(data);
    message::<causal::Message>(data);
    message::<cc_lo::Message>(data);
    record::<gryff::Record>(data);
    record::<epaxos::Record>(data);
    record::<multipaxos::Record>(data);
    record::<spanner::Record>(data);
    record::<causal::Record>(data);
    record::<cc_lo::Record>(data);
    frames(data);
}

fn message<M: Wire>(data: &[u8]) {
    let Ok(message) = wire::decode::<M>(data) else { return };
    let mut written = Vec::new();
    wire::encode(&message, &mut written);
    let again = wire::decode::<M>(&written).expect("what was written can be read");
    let mut twice = Vec::new();
    wire::encode(&again, &mut twice);
    // Bytes, not values: a float that is no number does not equal itself.
    assert_eq!(written, twice);
}

/// The first byte says where the key ends.
fn record<R: Record>(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    let Ok(record) = R::decode(key, value) else { return };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    record.encode_key(&mut key);
    if record.encode_value(&mut value) {
        let again = R::decode(&key, &value).expect("what was written can be read");
        let mut twice = Vec::new();
        again.encode_value(&mut twice);
        assert_eq!(value, twice);
    }
}

/// Bytes on a connection between nodes: frames, in them addresses and a message.
fn frames(data: &[u8]) {
    // Half of the inputs are no frames, and should be all the same: a message in its frame, as it is sent.
    let mut framed = Vec::new();
    let wrapped = frame::write(&mut framed, Frame::Message, |buffer| buffer.extend_from_slice(data));
    assert!(wrapped.is_ok(), "an input is short");
    for stream in [data, &framed] {
        let mut rest = stream;
        while let Ok(Some(frame)) = frame::read(rest, frame::LIMIT) {
            assert!((5..=rest.len()).contains(&frame.size), "a frame of {} bytes", frame.size);
            assert!(frame.content.len() < frame.size);
            if let Ok((from, to, message)) = frame::read_addresses(frame.content) {
                let mut again = Vec::new();
                frame::write_addresses(&mut again, from, to);
                assert_eq!(
                    frame::read_addresses(&again),
                    Ok((from, to, &[][..])),
                    "written out, they are others"
                );
                let _ = wire::decode::<gryff::Message>(message);
            }
            rest = &rest[frame.size..];
        }
    }
}

/// Bytes that a client gives for a context: refused, or read as what was written. Few mutations fit their tag, so the
/// bytes are taken for a token and for what is inside of one.
pub(crate) fn token(data: &[u8]) {
    let tokens = Tokens::new("fuzz", b"a secret of sixteen").expect("there is a secret");
    let now_s = 1_800_000_000;
    if let Ok(carried) = tokens.read(data, now_s) {
        assert_eq!(tokens.read(tokens.write(&carried, now_s).as_bytes(), now_s), Ok(carried));
    }
    if let Ok((carried, expires_s)) = token::read_body(data) {
        let held: usize = carried.iter().map(|carried| carried.context.0.len() * 8).sum();
        assert!(held <= data.len(), "{held} bytes of entries in {} bytes", data.len());
        let mut written = Vec::new();
        token::write_body(&carried, expires_s, &mut written);
        assert_eq!(token::read_body(&written), Ok((carried, expires_s)));
    }
}

/// A history file: whatever is made of it, reading it does not panic, and what is understood can be written in the
/// house's own format and read back.
pub(crate) fn history(data: &[u8]) {
    let detected = Format::detect(std::path::Path::new("h"), data);
    for (_, format) in Format::ALL {
        match history::read(data, format) {
            Ok(read) => {
                let mut written = Vec::new();
                history::write(&read.events, &mut written).expect("memory takes all that is written");
                let again = history::read(written.as_slice(), Format::Native).map(|again| again.events);
                assert_eq!(again.as_ref(), Ok(&read.events), "written by {format}, it is another");
            }
            Err(faults) => {
                assert!(!faults.is_empty(), "{format} refuses without a reason");
                assert!(
                    faults.is_sorted_by_key(|fault| fault.line),
                    "{format} tells faults in the order of lines"
                );
            }
        }
    }
    // What is meant as a history of our own is never taken for another's.
    if history::read(data, Format::Native).is_ok_and(|history| !history.events.is_empty()) {
        assert_eq!(detected, Format::Native);
    }
}
