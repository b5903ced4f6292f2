# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "dayjob"
  spec.version = File.read(File.join(__dir__, "lib/dayjob.rb"))[/VERSION = "(.+)"/, 1]
  spec.summary = "Enqueues jobs for dayjob, background jobs on Redis and Valkey."
  spec.authors = ["The dayjob developers"]
  spec.license = "MIT"
  spec.files = ["lib/dayjob.rb", "README.md"]
  spec.required_ruby_version = ">= 3.0"
  spec.metadata = { "rubygems_mfa_required" => "true" }
end
