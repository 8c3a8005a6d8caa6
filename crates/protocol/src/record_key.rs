//! How the keys of records about one key of the keyspace are laid out: a tag, the key's length, the key, and what
//! tells apart the records of one tag.

use bytes::Bytes;

/// Begins a record's key.
pub(crate) fn begin(buffer: &mut Vec<u8>, tag: u8, key: &[u8]) {
    buffer.push(tag);
    buffer.extend_from_slice(&(key.len() as u32).to_be_bytes());
    buffer.extend_from_slice(key);
}

/// Reads the tag and the key; leaves what follows in `rest`.
pub(crate) fn take_name(rest: &mut &[u8]) -> Result<(u8, Bytes), String> {
    let [tag] = take::<1>(rest)?;
    let length = u32::from_be_bytes(take(rest)?) as usize;
    let name = rest.get(..length).ok_or("the record's key is cut short")?;
    *rest = &rest[length..];
    Ok((tag, Bytes::copy_from_slice(name)))
}

/// Reads so many bytes.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or("the record's key is cut short")?;
    *rest = tail;
    Ok(*head)
}

/// Ends the reading of a record's key.
pub(crate) fn end(rest: &[u8]) -> Result<(), String> {
    if rest.is_empty() { Ok(()) } else { Err("the record's key is too long".into()) }
}
