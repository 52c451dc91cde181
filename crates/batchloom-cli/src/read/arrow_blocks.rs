//! The blocks of Arrow files, looked at before they are read: the reader asks for as much memory as a file tells it to.
//!
//! Promises: a file whose blocks do not lie in it is an error, at the cost of reading its metadata. (Buffers that are
//! compressed tell how large they were, which is not looked at.)

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};

use anyhow::{Context, Result, anyhow, ensure};
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::{root_as_footer, root_as_message};

/// The bytes at the end of a file: the length of its footer, and the name of the format.
const TAIL: usize = 10;

/// Checks the blocks that the footer of a file lists.
pub(super) fn require_blocks(file: &mut File) -> Result<()> {
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
    for block in footer.dictionaries().into_iter().chain(footer.recordBatches()).flatten() {
        let lengths = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
        let end: i128 = lengths.iter().map(|&bytes| i128::from(bytes)).sum();
        let is_within = lengths.iter().all(|&bytes| bytes >= 0) && end <= size.into();
        ensure!(is_within, "a block of it would end at byte {end} of {size}");
    }
    file.rewind()?;
    Ok(())
}

/// Checks the messages of a stream.
pub(super) fn require_messages(file: &mut File) -> Result<()> {
    let size = file.metadata()?.len();
    while let Some(length) = next_length(file)? {
        let mut message = Vec::new();
        file.by_ref().take(length.into()).read_to_end(&mut message)?;
        let message = root_as_message(&message).map_err(|error| anyhow!("a message is damaged: {error}"))?;
        let body = message.bodyLength();
        let end = i128::from(file.stream_position()?) + i128::from(body);
        ensure!(body >= 0 && end <= size.into(), "a message of it would end at byte {end} of {size}");
        file.seek_relative(body)?;
    }
    file.rewind()?;
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
