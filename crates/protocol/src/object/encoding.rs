//! Encodings of values.

use super::{Hash, List};
use bytes::Bytes;
use minicbor::bytes::ByteSlice;
use minicbor::encode::Write;
use minicbor::{
    Decode, Decoder, Encode, Encoder, decode::Error as DecodeError, encode::Error as EncodeError,
};
use std::sync::Arc;

/// `HMGET`'s reply.
pub(super) mod options {
    use super::{ByteSlice, Bytes, DecodeError, Decoder, EncodeError, Encoder, Write};

    /// Writes each string, or null.
    pub(crate) fn encode<C, W: Write>(
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
    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<Option<Bytes>>, DecodeError> {
        d.array_iter::<Option<&ByteSlice>>()?
            .map(|item| item.map(|b| b.map(|b| Bytes::copy_from_slice(b))))
            .collect()
    }
}

/// What is shared between versions, or nothing.
pub(super) mod shared {
    #![expect(clippy::ref_option, clippy::option_option, reason = "the forms that the derived code asks for")]

    use super::{Arc, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, Write};

    /// Writes it, or null.
    pub(crate) fn encode<C, T: Encode<C>, W: Write>(
        value: &Option<Arc<T>>,
        e: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        value.as_deref().encode(e, context)
    }

    pub(crate) fn decode<'b, C, T: Decode<'b, C>>(
        d: &mut Decoder<'b>,
        context: &mut C,
    ) -> Result<Option<Arc<T>>, DecodeError> {
        Ok(Option::<T>::decode(d, context)?.map(Arc::new))
    }

    /// What stands where nothing was written.
    #[expect(clippy::unnecessary_wraps, reason = "the form that the derived code asks for")]
    pub(crate) fn nil<T>() -> Option<Option<Arc<T>>> {
        Some(None)
    }

    pub(crate) fn is_nil<T>(value: &Option<Arc<T>>) -> bool {
        value.is_none()
    }
}

/// The items, from the left.
impl<C> Encode<C> for List {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        e.array(self.len() as u64)?;
        for item in self.iter() {
            e.bytes(item)?;
        }
        Ok(())
    }
}

/// Grows with what is really there, whatever the count claims.
impl<'b, C> Decode<'b, C> for List {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, DecodeError> {
        let items = d.array_iter::<&ByteSlice>()?;
        let list: Self =
            items.map(|item| item.map(|b| Bytes::copy_from_slice(b))).collect::<Result<_, _>>()?;
        if list.is_empty() { Err(DecodeError::message("an empty list")) } else { Ok(list) }
    }
}

/// A map, in the order of the names.
impl<C> Encode<C> for Hash {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        e.map(self.len() as u64)?;
        for (field, value) in self.iter() {
            e.bytes(field)?.bytes(value)?;
        }
        Ok(())
    }
}

/// Grows with what is really there, whatever the count claims; of equal names the last one counts.
impl<'b, C> Decode<'b, C> for Hash {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, DecodeError> {
        let fields = d.map_iter::<&ByteSlice, &ByteSlice>()?;
        let owned = |(field, value): (&ByteSlice, &ByteSlice)| {
            (Bytes::copy_from_slice(field), Bytes::copy_from_slice(value))
        };
        let hash: Self = fields.map(|pair| pair.map(owned)).collect::<Result<_, _>>()?;
        if hash.is_empty() { Err(DecodeError::message("an empty hash")) } else { Ok(hash) }
    }
}
