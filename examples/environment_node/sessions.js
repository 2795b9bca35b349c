// Sessions that outlive their streams: each request is acted on once, and the last answer kept.
"use strict";

const { randomUUID } = require("node:crypto");
const { Guess, Refused } = require("./task");
const { StatusError, status } = require("./status");

/** Slots, first come, first served. */
class Slots {
  constructor(count) {
    this.count = count;
    this.taken = 0;
    this.waiting = [];
  }

  /** How many more sessions would be opened now; undefined for no limit. */
  get credits() {
    if (this.count === 0) return undefined;
    return Math.max(0, this.count - this.taken - this.waiting.length);
  }

  take(seconds, given_up) {
    if (this.count === 0 || this.taken < this.count) {
      this.taken += 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer);
        this.waiting = this.waiting.filter((waiter) => waiter !== resolve_);
        reject(
          new StatusError(status.RESOURCE_EXHAUSTED, `all ${this.count} sessions are taken`, {
            reason: "NO_SESSION",
          }),
        );
      };
      const resolve_ = () => {
        clearTimeout(timer);
        given_up.removeEventListener("abort", leave);
        resolve();
      };
      const timer = setTimeout(leave, seconds * 1000);
      given_up.addEventListener("abort", leave);
      this.waiting.push(resolve_);
    });
  }

  giveBack() {
    const next = this.waiting.shift();
    if (next) next();
    else this.taken -= 1;
  }
}

class Session {
  constructor(request, sessions) {
    this.id = request.session_id;
    this.config = JSON.stringify(request.config);
    this.idle = Math.min(request.idle_seconds || Infinity, sessions.limits.idle);
    this.sessions = sessions;
    this.task = new Guess(request.config);
    this.state = "new";
    this.sequence = 0;
    this.last = null;
    this.answer = null;
    this.running = false;
    this.failed = false;
    this.lose = null;
    this.ended = false;
  }

  /** Gives it to a stream; one that had it is told `lose(error)`. */
  attach(lose) {
    this.lose?.(
      new StatusError(status.ABORTED, "another stream has taken the session over", {
        reason: "SESSION_TAKEN_OVER",
      }),
    );
    this.lose = lose;
    this.wind();
  }

  detach(lose) {
    if (this.lose !== lose) return;
    this.lose = null;
    this.wind();
  }

  /** The promise of the answer to a request; of one that is sent again, that of the first time. */
  submit(request) {
    const { sequence, request: kind } = request;
    const same = JSON.stringify(request);
    if (this.answer !== null && sequence === this.sequence) {
      if (same !== this.last) {
        throw wrong("sequence", `got ${sequence} again, for another request`, "SEQUENCE_REUSED");
      }
      return this.answer;
    }
    const ends = kind === "score" || kind === "close";
    // A step that was cut before it arrived has left a gap.
    if (sequence !== this.sequence + 1 && !(ends && sequence > this.sequence)) {
      throw new StatusError(status.OUT_OF_RANGE, `sequence: got ${sequence}`, {
        reason: "SEQUENCE_OUT_OF_ORDER",
      });
    }
    if (this.failed && kind !== "close") {
      throw outOfOrder(`${kind} after a request that failed`, "NO_RUNNING_EPISODE");
    }
    if (this.running && !ends) {
      throw outOfOrder(`${kind} while another request runs`, "REQUEST_RUNNING");
    }
    this.sequence = sequence;
    this.last = same;
    this.running = true;
    const answer = this.act(request)
      .catch((error) => {
        if (this.answer === answer) {
          this.failed = true;
          this.release();
        }
        throw told(error);
      })
      .finally(() => {
        // A step that score or close came before, is nobody's any more.
        if (this.answer === answer) {
          this.running = false;
          this.wind();
        }
      });
    answer.catch(() => {});
    this.answer = answer;
    this.wind();
    return answer;
  }

  async act(request) {
    const { sequence, request: kind } = request;
    switch (kind) {
      case "reset": {
        if (this.state !== "new") throw outOfOrder("reset was called before", "ALREADY_RESET");
        const { scenario, seed } = request.reset;
        const observation = await this.task.reset(scenario, seed);
        this.state = "running";
        return { sequence, reset: { observation } };
      }
      case "step": {
        if (this.state === "new") throw outOfOrder("step before reset", "NO_RUNNING_EPISODE");
        if (this.state !== "running") {
          throw outOfOrder("step after the end of the episode", "NO_RUNNING_EPISODE");
        }
        const step = await this.task.step(request.step.action);
        if (step.terminated || step.truncated) this.state = "ended";
        return { sequence, step };
      }
      case "score": {
        if (this.state !== "running" && this.state !== "ended") {
          throw outOfOrder(`score of an episode that is ${this.state}`, "NO_RUNNING_EPISODE");
        }
        this.state = "scored";
        return { sequence, score: await this.task.score() };
      }
      case "close":
        await this.end();
        return { sequence, close: {} };
      default:
        throw wrong("request", "set reset, step, score or close");
    }
  }

  async end(why) {
    clearTimeout(this.timer);
    this.ended = true;
    this.sessions.held.delete(this.id);
    if (why) this.lose?.(why);
    await this.release();
  }

  /** Frees the slot; once. */
  async release() {
    if (this.released) return;
    this.released = true;
    await this.task.close();
    this.sessions.slots.giveBack();
  }

  wind() {
    clearTimeout(this.timer);
    if (this.ended || (this.lose !== null && this.running)) return;
    const seconds = this.lose === null ? this.sessions.limits.resume : this.idle;
    const silent = new StatusError(status.DEADLINE_EXCEEDED, "the session got no request", {
      reason: "SESSION_IDLE",
    });
    this.timer = setTimeout(() => this.end(silent), seconds * 1000);
  }
}

class Sessions {
  constructor(limits) {
    this.limits = { idle: 3600, resume: 60, wait: 3600, ...limits };
    this.slots = new Slots(limits.sessions ?? 0);
    this.held = new Map();
  }

  /** A session, and whether it was there before. */
  async open(request, given_up) {
    const found = this.find(request);
    if (found) return [found, true];
    if (request.resume) {
      throw new StatusError(status.NOT_FOUND, `no session ${request.session_id}`, {
        reason: "SESSION_NOT_FOUND",
      });
    }
    let session;
    try {
      session = new Session(request, this);
    } catch (error) {
      throw told(error);
    }
    await this.slots.take(Math.min(request.wait_seconds, this.limits.wait), given_up);
    try {
      // Another stream may have waited for the same one.
      const made = this.find(request);
      if (made) {
        this.slots.giveBack();
        return [made, true];
      }
    } catch (error) {
      this.slots.giveBack();
      throw error;
    }
    this.held.set(session.id, session);
    return [session, false];
  }

  find(request) {
    const session = this.held.get(request.session_id);
    if (session && session.config !== JSON.stringify(request.config)) {
      throw new StatusError(status.ALREADY_EXISTS, "the session has another config", {
        reason: "SESSION_DIFFERS",
      });
    }
    return session;
  }
}

const outOfOrder = (message, reason) =>
  new StatusError(status.FAILED_PRECONDITION, message, { reason });

const wrong = (field, description, reason = "INVALID_ARGUMENT") =>
  new StatusError(status.INVALID_ARGUMENT, `${field}: ${description}`, {
    reason,
    violations: [{ field, description }],
  });

/** What the client is told of an error. */
function told(error) {
  if (error instanceof StatusError) return error;
  if (error instanceof Refused) return wrong(error.field, error.message);
  const error_id = randomUUID().slice(0, 12);
  console.error(error_id, error);
  return new StatusError(status.INTERNAL, `${error.name}: ${error.message}`, {
    reason: "ENVIRONMENT_RAISED",
    metadata: { type: error.name, error_id },
  });
}

module.exports = { Sessions, outOfOrder, told, wrong };
