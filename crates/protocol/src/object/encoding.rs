//! Encodings of values.

/// `HMGET`'s reply.
pub mod options {
    use bytes::Bytes;
    use minicbor::encode::Write;
    use minicbor::{Decoder, Encoder, decode::Error as DecodeError, encode::Error as EncodeError};

    /// Writes each string, or null.
    pub fn encode<C, W: Write>(
        value: &[Option<Bytes>],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(value.len() as u64)?;
        for item in value {
            match item {
                Some(bytes) => e.bytes(bytes)?,
                None => e.null()?,
            };
        }
        Ok(())
    }

    /// Grows with what is really there, whatever the count claims.
    pub fn decode<'b, C>(d: &mut Decoder<'b>, _: &mut C) -> Result<Vec<Option<Bytes>>, DecodeError> {
        d.array_iter::<Option<&minicbor::bytes::ByteSlice>>()?
            .map(|item| item.map(|b| b.map(|b| Bytes::copy_from_slice(b))))
            .collect()
    }
}
