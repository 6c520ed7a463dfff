"""The text of the page; `report` fills in the figures."""

from __future__ import annotations

from typing import Final

PAGE: Final = """\
# Benchmarks: DynamoDB

<!-- Written by `make bench-dynamodb ARGS=--write`; do not edit. -->

What the DynamoDB store does for each operation: the calls it makes, the units they consume, how
long that takes, and what it costs at list prices. Calls, units and dollars of an operation are the
same on AWS. Milliseconds and appends per second are those of the engine below, on this machine:
they allow comparisons, and say nothing about how fast DynamoDB is.

{facts}

## Operations

Through `Streams`, in one process, over open connections. The process has used the stream within the
last minute; if the operation is “cold”, it has never used it.

{operations}

- **calls**: `+` at the same time, `→` one after the other.{shares}
- **round trips**: calls that were made one after the other.
- **write units**, **read units**: what AWS bills for one operation. Write units are as the engine
  reported them: a transaction counts double, and so does a write to the index `due`. Read units are
  computed from the size of the items, in steps of 4 KB, and halved for the polls of a waiting
  reader, which are eventually consistent: ministack reports the same for every size.
- **p50**, **p99**: over **n** runs; of few runs, p99 is about the slowest. ministack's queries take
  longer the more entries a stream has (here mostly 100), which AWS's do not.

An entry has about {overhead} bytes beside its body, so a body of up to about {one_unit} bytes costs
one write unit. “With a producer, again” repeats a request that was acknowledged before: nothing is
written, but the response must be based on current data, so the tail is read. The 1 MiB are entries
of 10 KB; that is about as much as DynamoDB returns in one page, so it may take a second query, and
smaller entries take more. Deleting does not include the sweep a day later, which removes each entry
at one write unit per KB.

## Waiting

A process notices the appends of other processes by polling the next slot: every {fastest:g} s
while the last entry is younger than {recent} minutes, then less often in proportion to the silence,
and every {slowest:g} s after {quiet:.0f} minutes. All readers that wait for a stream in one process
share these polls; a process that waits for many streams makes about {polls:,} polls a second at
most. In the table above, the time is from sending the append until the reader has it, and the calls
are those of the reader in that time.

From the acknowledgement of an append to the response of a waiting reader, through the whole
application:

{delivered}

These were measured in virtual time, on a simulation of DynamoDB: a call takes 4 to 6 ms, every
other eventually consistent read is up to 20 ms behind, and the work of a process takes no time. On
AWS the way from a function through CloudFront to the reader comes on top. The process notices the
append first, and then reads it.

{waits}

That is a month of 730 hours in which one long-poll of {long_poll} s follows the other, on a
function of {megabytes} MB. An append that is delivered takes two read units and a request more.

## Many writers on one stream

Plain appends of 100 B. Processes share nothing but the table (here they are {processes} stores,
each with its own memory and connections, on one event loop). Each writer writes again as soon as it
can: about {appends} appends in all, so that the growing item below is filled and emptied once, or
{crowded} where a process has several writers; {rounds} times near, once far away. A slot chain that
several processes write to is one of several with some fifty slots: ministack's queries take longer
the more entries a stream has.

{races}

- **away**: the latency added to each call, on average. Far away, as AWS is, more writes are in
  flight at the same time, so more of them lose.
- **attempts**: writes per append, including those that found the slot taken. The appends of one
  process that wait for the same write share a slot, so there are fewer writes than appends.
- **write units**, **read units**: per append, including lost attempts. AWS bills a write whose
  condition fails, and a canceled transaction, like one that succeeds; local engines report nothing
  for them, so they are added here. A writer that loses twice in a row reads the tail again.
- **p99**: of one append, from the call to its acknowledgement, including pauses after lost
  attempts. The winner of a slot knows the tail first and would win the next one, too. So in the
  store a process gives way after an append, for as many slots as others have filled since its last
  one; the other designs here do not, so that each writer writes many entries in a row: few
  attempts, but long waits.
- **refused**: appends in all that lost {attempts} times and got 503; they were repeated.

## Requests spread over environments

Lambda gives each request an environment, and an environment remembers the tail from its own last
request. Here plain appends of 100 B come to one stream at random times, each to an environment
chosen at random, which has appended to it before; a call takes 5 ms.

{spreads}

A process estimates from its own appends how many slots others fill in a second. When it expects a
quarter of a slot since it last knew the tail, it reads the tail before it writes, at one read unit
and one round trip. A lost attempt costs five times as much, and from far behind it takes two of
them, a read, and a third attempt. At first others are presumed to fill a slot in four seconds; a
process that is alone learns that from its first appends. After a minute it reads the name, too.

## Other designs

The same appends on the same engine through the same client, with the same back-off:

- **{slots}**: one conditional PutItem fills the next slot. This is the real store, with its rules.
- **{transaction}**: TransactWriteItems advances a head item, on the condition
  that it has not changed, and puts the entry.
- **{tip}**: UpdateItem adds the body to a list in one item, on the condition that it has not
  changed; at 32 KiB a transaction moves the list to an item of its own. DynamoDB bills the size of
  the whole item for each update.

The others are as lean as possible and do nothing else: no producers, no closing, no rules. An
append needs one round trip in each of them; they differ in the cost of an append and of a lost
attempt.

{designs}

## The client

CPU time per PutItem of an entry of 100 B in the calling process, user and system, against a stub in
another process; 16 at a time are threads for boto3 and tasks for Tailrace's. TLS is not included.

{clients}

## Cost

Dollars for a million of each, from the units above, at the list prices of {where_and_when}, on
demand: per million ${write_price:g} for write units, ${read_price:g} for read units,
${put_price:.2f} for S3 PUTs and ${get_price:.2f} for S3 GETs. Storage, transfer and the processes
that call are not included.{away}

{cost}
"""
