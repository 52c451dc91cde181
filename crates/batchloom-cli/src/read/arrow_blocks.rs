//! The blocks of Arrow files, checked before they are read: the reader allocates the memory that a file declares.
//!
//! Promises: a file whose blocks do not lie in it is an error, and so is one with a compressed buffer that declares
//! more bytes than can be had, at the cost of reading its metadata.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};

use anyhow::{Context, Result, anyhow, ensure};
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::{Message, root_as_footer, root_as_message};

/// The bytes at the end of a file: the length of its footer, and the name of the format.
const TAIL: usize = 10;

/// Checks the blocks that the footer of a file lists, and returns the number of rows in them.
pub(super) fn require_blocks(file: &mut File) -> Result<u64> {
    let size = file.metadata()?.len();
    let mut tail = [0; TAIL];
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL as u64)))?;
    file.read_exact(&mut tail).context("it is cut")?;
    let length = read_footer_length(tail)? as u64;
    let start = size.checked_sub(TAIL as u64 + length);
    let start = start.with_context(|| format!("its footer would have {length} bytes of {size}"))?;
    file.seek(SeekFrom::Start(start))?;
    let mut footer = Vec::new();
    file.by_ref().take(length).read_to_end(&mut footer)?;
    let footer = root_as_footer(&footer).map_err(|error| anyhow!("its footer is damaged: {error}"))?;
    let mut rows = 0;
    for block in footer.dictionaries().into_iter().chain(footer.recordBatches()).flatten() {
        let lengths = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
        let end: i128 = lengths.iter().map(|&bytes| i128::from(bytes)).sum();
        let is_within = lengths.iter().all(|&bytes| bytes >= 0) && end <= size.into();
        ensure!(is_within, "a block of it would end at byte {end} of {size}");
        file.seek(SeekFrom::Start(block.offset().unsigned_abs()))?;
        if let Some(length) = next_length(file)? {
            let mut message = Vec::new();
            file.by_ref().take(length.into()).read_to_end(&mut message)?;
            let body = block.offset().unsigned_abs() + u64::from(block.metaDataLength().unsigned_abs());
            let message = parse_message(&message)?;
            require_memory(file, &message, body)?;
            rows += count_rows(&message);
        }
    }
    file.rewind()?;
    Ok(rows)
}

/// Checks the messages of a stream, and returns the number of rows in them.
pub(super) fn require_messages(file: &mut File) -> Result<u64> {
    let size = file.metadata()?.len();
    let mut rows = 0;
    while let Some(length) = next_length(file)? {
        let mut message = Vec::new();
        file.by_ref().take(length.into()).read_to_end(&mut message)?;
        let message = parse_message(&message)?;
        let (start, body) = (file.stream_position()?, message.bodyLength());
        let end = i128::from(start) + i128::from(body);
        ensure!(body >= 0 && end <= size.into(), "a message of it would end at byte {end} of {size}");
        require_memory(file, &message, start)?;
        rows += count_rows(&message);
        file.seek(SeekFrom::Start(start + body.unsigned_abs()))?;
    }
    file.rewind()?;
    Ok(rows)
}

/// The rows of a message; none in a dictionary. The reader refuses a number that its buffers do not hold.
fn count_rows(message: &Message<'_>) -> u64 {
    message.header_as_record_batch().map_or(0, |batch| u64::try_from(batch.length()).unwrap_or(0))
}

fn parse_message(message: &[u8]) -> Result<Message<'_>> {
    root_as_message(message).map_err(|error| anyhow!("a message is damaged: {error}"))
}

/// Checks that the memory can be had that the compressed buffers of a message declare.
fn require_memory(file: &mut File, message: &Message<'_>, body: u64) -> Result<()> {
    let rows = message.header_as_record_batch();
    let rows = rows.or_else(|| message.header_as_dictionary_batch()?.data());
    let Some(rows) = rows.filter(|rows| rows.compression().is_some()) else { return Ok(()) };
    for buffer in rows.buffers().into_iter().flatten().filter(|buffer| buffer.length() > 0) {
        let start = u64::try_from(buffer.offset()).ok().and_then(|offset| body.checked_add(offset));
        file.seek(SeekFrom::Start(start.context("a buffer begins before its block")?))?;
        let mut size = [0; 8];
        file.read_exact(&mut size).context("a buffer ends after the file")?;
        // Less than 0 marks a buffer that is not compressed.
        let size = usize::try_from(i64::from_le_bytes(size)).unwrap_or(0);
        let can_be_had = Vec::<u8>::new().try_reserve_exact(size).is_ok();
        ensure!(can_be_had, "a compressed buffer would take {size} bytes, which cannot be had");
    }
    Ok(())
}

/// The length of the next message, or `None` at the end of a stream.
fn next_length(file: &mut File) -> Result<Option<u32>> {
    let mut length = [0; 4];
    for _ in 0..2 {
        match file.read_exact(&mut length) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            done => done?,
        }
        // Newer streams mark each message.
        if length != [0xff; 4] {
            break;
        }
    }
    let length = u32::from_le_bytes(length);
    Ok((length > 0).then_some(length))
}
