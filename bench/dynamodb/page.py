"""The words of the page; `report` fills in the figures."""

from __future__ import annotations

from typing import Final

PAGE: Final = """\
# Benchmarks: DynamoDB

<!-- Written by `make bench-dynamodb ARGS=--write`; do not edit. -->

What the DynamoDB store does for each operation: the calls it makes, the units they consume, how
long that takes, and what it costs at list prices. Calls, units and dollars of an operation are the
same on AWS. Milliseconds and appends per second are those of the engine below, on this machine:
they compare one thing with another, and say nothing about how fast DynamoDB is.

{facts}

## Operations

Through `Streams`, in one process, over connections that are open. The process knows the stream,
because it has used it within the last minute; where it says “cold” it has never seen it.

{operations}

- **calls**: `+` at the same time, `→` one after the other.{shares}
- **round trips**: calls that were made one after the other.
- **write units**, **read units**: what AWS bills for one operation. Write units are as the engine
  reported them: a transaction counts double, and the write to the index of what expires counts.
  Read units are reckoned from the size of what was read, in steps of 4 KB, and halved for the
  looks of a waiting reader, which are eventually consistent: ministack reports the same whatever
  the size.
- **p50**, **p99**: over **n** runs; where these are few, p99 is about the slowest. ministack's
  queries take the longer the more entries a stream has (here mostly 100), which AWS's do not.

An entry has about {overhead} bytes beside its body, so a body of up to about {one_unit} bytes costs
one write unit. “With a producer, again” repeats a request that was acknowledged before: nothing is
written, but what the answer is based on has to be true, so the store is asked. The 1 MiB are
entries of 10 KB; that is about as much as DynamoDB puts into one page, so it may take one query
more, and smaller entries take more of them. Deleting does not include what the sweep does a day
later: it removes each entry, at one write unit per KB.

## Waiting

A waiting reader is told of an append that another process made by looking at the next slot: first
every {fastest:g} s, then after a tenth of the silence so far, at last every {slowest:g} s. All who
wait for a stream in one process share these looks. In the table above, time runs from sending the
append until the reader has it, and the calls are those of the reader in that time.

{idle}

The first row was measured for {watched:.0f} s, the rest of its minute is reckoned from the last
seconds. The last row comes on top: without data a long-poll ends after {long_poll:g} s, and each
reads the tail before it waits and after. A cache in front lets readers share that, too.

## Many writers on one stream

Plain appends of 100 B. Processes share nothing but the table (here they are {writers} stores, each
with its own memory and connections, on one event loop). In one process the writers of a stream take
turns. Each writes again as soon as it can, {appends} appends in all, so that the growing item below
is filled and emptied once; {rounds} times near, once far away.

{races}

- **away**: how much longer each call takes than it does here, on average. Far away, as AWS is, more
  writers are on their way at the same time, so more of them lose.
- **attempts**: writes per append, those that found the slot taken included.
- **write units**, **read units**: per append, lost attempts included. AWS bills a write whose
  condition fails, and a canceled transaction, like one that succeeds; local engines report nothing
  for it, so it is added here. Who loses twice in a row reads the tail anew.
- **round trips**: per append, those of lost attempts and of reads included.
- **p99**: of one append, from asking for it to its acknowledgement, pauses after losing included.
  Who has won knows the tail first and mostly wins again, so the writers write in runs, one after
  the other: few attempts, but long waits. The store leaves a gap after some appends in a row, so
  that others get in; the other designs here do not.
- **refused**: appends in all that lost {attempts} times and got 503; they were asked for again.

## Other designs

The same appends on the same engine through the same client, with the same back-off:

- **{slots}**: one conditional PutItem fills the next slot. This is the real store, with its rules.
- **{transaction}**: TransactWriteItems moves a head item on, if it is where the
  writer thinks it is, and puts the entry.
- **{tip}**: UpdateItem adds the body to a list in one item, if that is as the writer knows
  it; at 32 KiB a transaction moves the list to an item of its own.
  DynamoDB bills the size of the whole item for each update.

The others are as lean as they can be and do nothing else: no producers, no closing, no rules. One
append needs one round trip in each of them; what differs is what it costs, and what losing costs.

{designs}

## The client

CPU time per PutItem of an entry of 100 B in the process that calls, user and system, against a stub
in another process; 16 at a time are threads for boto3 and tasks for Tailrace's. TLS comes on top.

{clients}

## Cost

Dollars for a million of each, from the units above, at the list prices of {where_and_when}, on
demand: per million ${write_price:g} for write units, ${read_price:g} for read units,
${put_price:.2f} for S3 PUTs and ${get_price:.2f} for S3 GETs. Storage, transfer and what runs the
code come on top.{away}

{cost}
"""
