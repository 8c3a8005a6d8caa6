//! What a message or record must be able to do to leave its process, and helpers for its encoding.
//!
//! The encoding is CBOR with numbered fields: fields can be added and unknown ones are skipped, so that two
//! adjacent versions interoperate. Decoding never panics, and allocates no more than the input it was given.

use minicbor::{Decode, Encode};
use std::fmt::Debug;

/// A message or record that can be encoded and decoded.
pub trait Wire: Clone + Debug + PartialEq + Encode<()> + for<'b> Decode<'b, ()> + 'static {}

impl<T: Clone + Debug + PartialEq + Encode<()> + for<'b> Decode<'b, ()> + 'static> Wire for T {}

/// Appends the encoding of `message` to `buffer`.
pub fn encode<T: Encode<()>>(message: &T, buffer: &mut Vec<u8>) {
    // Writing to a Vec has no error of its own, and the derived encoders raise none.
    minicbor::encode(message, buffer).expect("encoding into memory cannot fail");
}

/// How many bytes the encoding of `message` takes.
pub fn length<T: Encode<()>>(message: &T) -> usize {
    struct Count(usize);
    impl minicbor::encode::Write for Count {
        type Error = std::convert::Infallible;
        fn write_all(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
            self.0 += bytes.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    minicbor::encode(message, &mut count).expect("counting cannot fail");
    count.0
}

/// Reads one message that fills `input` to its end.
///
/// # Errors
/// A description of what is wrong with the input.
pub fn decode<T: for<'b> Decode<'b, ()>>(input: &[u8]) -> Result<T, minicbor::decode::Error> {
    let mut decoder = minicbor::Decoder::new(input);
    let value = decoder.decode()?;
    if decoder.position() == input.len() {
        Ok(value)
    } else {
        Err(minicbor::decode::Error::message("bytes after the end of the message"))
    }
}

/// `#[cbor(with = "crate::wire::blob")]`: a [`bytes::Bytes`] field as a CBOR byte string.
pub mod blob {
    use bytes::Bytes;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder, decode::Error as DecodeError, encode::Error as EncodeError};

    /// Writes the bytes with their length.
    pub fn encode<C, W: Write>(
        value: &Bytes,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.bytes(value)?.ok()
    }

    /// Copies the bytes out of the input, so that a small value does not hold a whole frame in memory.
    pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Bytes, DecodeError> {
        d.bytes().map(Bytes::copy_from_slice)
    }
}

/// `#[cbor(with = "crate::wire::numbers")]`: a [`smallvec::SmallVec`] of numbers, as a `Vec` of them would be encoded.
pub mod numbers {
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder, decode::Error as DecodeError, encode::Error as EncodeError};
    use smallvec::{Array, SmallVec};

    /// Writes the count, then each number.
    pub fn encode<C, W: Write, A: Array<Item = u64>>(
        value: &SmallVec<A>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(value.len() as u64)?;
        for number in value {
            e.u64(*number)?;
        }
        Ok(())
    }

    /// Grows with what is really there, whatever the count claims.
    pub fn decode<C, A: Array<Item = u64>>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<SmallVec<A>, DecodeError> {
        d.array_iter::<u64>()?.collect()
    }
}

/// `#[cbor(with = "crate::wire::blobs")]`: a list of [`bytes::Bytes`].
pub mod blobs {
    use bytes::Bytes;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder, decode::Error as DecodeError, encode::Error as EncodeError};

    /// Writes the count, then each string.
    pub fn encode<C, W: Write>(
        value: &[Bytes],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(value.len() as u64)?;
        for bytes in value {
            e.bytes(bytes)?;
        }
        Ok(())
    }

    /// Grows with what is really there, whatever the count claims.
    pub fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<Bytes>, DecodeError> {
        d.array_iter::<&minicbor::bytes::ByteSlice>()?
            .map(|item| item.map(|b| Bytes::copy_from_slice(b)))
            .collect()
    }
}
